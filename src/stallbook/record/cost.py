"""What the recorder costs its engine, measured where it runs.

A loop that does nothing but record has the recorder's code and data in the caches, an engine does not: no calibration
can know. So now and then (once in 32 KiB of log, about 300 steps) all calls are timed until a step ends, and their sum
is scaled by the bytes that they wrote. While it is timed, a recorder is of a class of its own, its twin: the others are
as fast as if there were no timing.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["INTERRUPTED_NS", "Cost", "twin"]

_METHODS: Final = (
    "arrive", "prompt", "admit", "evict", "readmit", "finish", "hold", "release", "deliver", "restart", "probe",
    "pause", "join", "part", "begin", "enter", "leave", "look", "window", "prefill", "member", "emit", "emit_some",
    "drop",
)  # fmt: skip
INTERRUPTED_NS: Final = 50_000
"""A call that took longer was interrupted, and what ran meanwhile is not the recorder's: so much counts."""
_PAUSE_NS: Final = 2_000
"""Both calls of the callback of a collection."""
_clock = time.perf_counter_ns


class Cost:
    """The books: what was timed took `ns` and wrote `wrote` bytes, in `windows`, the last from byte `since` on."""

    __slots__ = ("ns", "since", "windows", "wrote")

    def __init__(self) -> None:
        self.ns = self.wrote = self.since = self.windows = 0

    def add(self, ns: int) -> None:
        """A call took so long, a pair of clock reads included."""
        start = _clock()
        self.ns += max(0, min(ns, INTERRUPTED_NS) - _clock() + start)

    def begin(self, written: int) -> None:
        """A window begins at that byte. The first of all is a process warming up: it counts until there is another."""
        self.since = written
        if self.windows == 1:
            self.ns = self.wrote = 0

    def done(self, written: int) -> None:
        """A step ended at that byte: the end of a window."""
        self.wrote += written - self.since
        self.windows += 1

    def total(self, written: int, pauses: int) -> int:
        """Ns in all, for so many bytes and collections."""
        calls = self.ns * written // self.wrote if self.wrote else self.ns
        return calls + pauses * _PAUSE_NS


@functools.cache
def twin(plain: type[Any]) -> type[Any]:
    """A class with the methods of `plain`, timed; `end` makes an object of it one of `plain` again."""

    def timed(method: Callable[..., Any], last: bool = False) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **more: Any) -> Any:
            self.__class__ = plain
            start = _clock()
            result = method(self, *args, **more) if more else method(self, *args)
            took = _clock() - start
            self._cost.add(took)
            if last:
                self._end_window()
            else:
                self.__class__ = found
            return result

        return call

    methods = {name: timed(getattr(plain, name)) for name in _METHODS}
    found = type(plain.__name__, (plain,), {"__slots__": (), **methods, "end": timed(plain.end, last=True)})
    return found
