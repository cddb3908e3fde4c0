"""A recorder that records nothing, for runs without one."""

from __future__ import annotations

import time
from typing import Any, Self

__all__ = ["NullRecorder"]


class NullRecorder:
    """Has the methods of `Recorder`; `begin`, `emit`, `emit_some` and `end` still return the time."""

    __slots__ = ("_handles",)

    dropped = errors = refused = self_ns = 0

    def __init__(self, *_args: Any, **_settings: Any) -> None:
        self._handles = 0

    def arrive(self, *_: Any, **__: Any) -> int:
        """A new handle."""
        self._handles += 1
        return self._handles - 1

    def name(self, _text: str) -> int:
        """Always 0."""
        return 0

    def begin(self, _step: int = -1, t: int | None = None) -> int:
        """The time."""
        return time.perf_counter_ns() if t is None else t

    def emit(self, t: int | None = None) -> int:
        """The time."""
        return time.perf_counter_ns() if t is None else t

    def emit_some(self, _pairs: Any, t: int | None = None) -> int:
        """The time."""
        return time.perf_counter_ns() if t is None else t

    def end(self, *_: Any, t: int | None = None, **__: Any) -> int:
        """The time."""
        return time.perf_counter_ns() if t is None else t

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    prompt = admit = readmit = finish = evict = hold = release = deliver = restart = probe = pause = look = _nothing
    join = part = enter = leave = window = prefill = member = drop = fact = flush = close = _nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
