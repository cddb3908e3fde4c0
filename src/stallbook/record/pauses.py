"""Garbage collections, through `gc.callbacks`: two clock reads each, on whatever thread collects."""

from __future__ import annotations

import gc
from collections.abc import Callable

from stallbook.record.spool import R_PAUSE

__all__ = ["Pauses"]

_LIMIT = 65536


class Pauses:
    """Collects the pauses of this process until the recorder takes them.

    A collection can start at any allocation, also in the middle of a record, and on any thread. So the callback only
    appends packed bytes to a list (one atomic step, and nothing the collector tracks); whoever writes the next record
    takes them along. The interpreter never runs two collections at once, so `_start` needs no lock.
    """

    __slots__ = ("_clock", "_collected", "_start", "lost", "pending", "seen")

    def __init__(self, clock: Callable[[], int], collected: Callable[[], int]) -> None:
        self._clock, self._collected, self._start = clock, collected, -1
        self.pending: list[bytes] = []
        self.lost = self.seen = 0

    def start(self) -> None:
        """Begin to listen."""
        gc.callbacks.append(self)

    def stop(self) -> None:
        """Listen no more."""
        if self in gc.callbacks:
            gc.callbacks.remove(self)

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector."""
        now = self._clock()
        if phase == "start":
            self._start = now
            return
        start, self._start = self._start, -1
        if start < 0:
            return
        # A collection that runs finalizers can let another thread emit. It stopped the process only after that.
        start = max(start, min(self._collected(), now))
        self.seen += 1
        if len(self.pending) < _LIMIT:
            self.pending.append(R_PAUSE.pack(start, now, info["generation"], -1))
        else:
            self.lost += 1
