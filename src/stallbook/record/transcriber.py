"""A recorder for what was recorded elsewhere: every stamp and counter is given, nothing is sampled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from stallbook.record import spool
from stallbook.record.recorder import Recorder

__all__ = ["UNKNOWN_ROWS", "Transcriber"]

UNKNOWN_ROWS: Final = -2
"""As `decode_tokens` of `end`: the log does not say, where -1 stands for the size of the batch."""


class Transcriber(Recorder):
    """Writes a log from stamps. `manifest` replaces what a recorder would say of itself and its machine."""

    __slots__ = ()

    _name_limit = 0x7FFF
    _longest = 1 << 23

    def __init__(self, path: str | os.PathLike[str], manifest: Mapping[str, Any]) -> None:
        super().__init__(path, engine="", os_counters=None, gc_pauses=False, strict=True, extra=manifest)
        self._facts = dict(manifest["facts"])
        self._kind = spool.STEP_OS
        self._layouts = [spool.layout(self._kind, marks) for marks in range(64)]
        self._write_manifest()

    def _begin_window(self) -> None:
        return  # there is no engine to cost anything

    # A log is told table by table, so that a request can be evicted after it finished; and it has been checked.

    def _lives(self, handle: int) -> bool:
        return True

    def _arrived(self, handle: int) -> bool:
        return True

    def _stamp(self, t: int | None) -> int:
        return self._clock() if t is None else t

    def _after_arrival(self, handle: int, t: int | None) -> int:
        return self._stamp(t)

    def _count(self, tokens: int) -> int:
        return tokens

    def _unique(self, name: str) -> str:
        return name

    @property
    def batch(self) -> frozenset[int]:
        """The handles of the batch that decodes."""
        return frozenset(self._batch)

    def counters(self, cpu: int, run_delay: int) -> None:
        """The OS counters of the open step; to be called last before `end`."""
        self._times += (cpu, run_delay)

    def exact_members(self) -> None:
        """The batch of the open step, which has emitted, is what `member` said and no more."""
        self._flags |= spool.MEMBERS_EXACT
