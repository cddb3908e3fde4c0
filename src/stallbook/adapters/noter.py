"""Writes what hooks noted, with what only the engine's process knows: its stamps, and what its device did when."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from stallbook.adapters.device import DeviceLane, Track
from stallbook.adapters.later import Waits
from stallbook.adapters.stamps import Stamps
from stallbook.notes.words import BLOCKED, STAMPS, WINDOWS
from stallbook.record import WholeRecorder

__all__ = ["Noter"]


class Noter:
    """Notes of one engine, to be told by a teller of `stallbook.notes`. device: its lane, if it has one."""

    def __init__(self, recorder: WholeRecorder, stamps: Stamps, clock: Callable[[], int]) -> None:
        self._recorder, self._stamps, self._clock = recorder, stamps, clock
        self.device: DeviceLane | None = None
        self._ran: list[tuple[int, Track, int]] = []
        """Steps that emitted: number, the device's track, and when."""
        self._waits = Waits()

    def told_by(self, teller: str, names: tuple[str, ...], **settings: Any) -> None:
        """Announce what tells these notes. names: those that it will use, beside those that were given out."""
        for name in names:
            self._recorder.name(name)
        self._recorder.noted(teller, os=self._recorder.os_counters, **settings)

    def renew(self) -> None:
        """Another thread is looked at from now on."""
        self._waits = Waits()

    def ran(self, step: int, track: Track, t: int) -> None:
        """A step emitted at `t`, so that the device is done with it."""
        self._ran.append((step, track, t))

    def write(self, notes: list[int], blocked: int) -> None:
        """Write the notes. blocked: what keeps the first waiting request out."""
        now = self._clock()
        words = [STAMPS, *self._stamps.noted()]
        for step, track, t in self._ran:
            found = self.device.windows(track, t) if self.device is not None else None
            if found:
                words += (WINDOWS, step, 1, len(found))
                for window in found:
                    words += window
        self._ran.clear()
        words += notes
        words += (BLOCKED, blocked)
        self._recorder.note(now, self._waits(now), array("q", words))
