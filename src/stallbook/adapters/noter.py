"""Writes what hooks noted, with what only the engine's process knows: its stamps, and what its device did when."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from stallbook.adapters.device import DeviceLane, Track
from stallbook.adapters.hooks import Hooks
from stallbook.adapters.later import Waits
from stallbook.adapters.stamps import Stamps
from stallbook.notes.words import BLOCKED, GRAPH, STAMPS, WINDOWS
from stallbook.record import WholeRecorder

__all__ = ["Noter"]

_MOST: Final = 1 << 20
"""Words of a record: half of what one may hold."""


class Noter:
    """Notes of one engine, to be told by a teller of `stallbook.notes`. device: its lane, if it has one. tracks: the
    device's, of each step that has not emitted. graphs: time, code and padded size of forward passes, whose dispatcher
    may be asked without a step.
    """

    def __init__(self, recorder: WholeRecorder, stamps: Stamps, hooks: Hooks, clock: Callable[[], int]) -> None:
        self._recorder, self._stamps, self._hooks, self._clock = recorder, stamps, hooks, clock
        self.device: DeviceLane | None = None
        self.tracks: dict[int, Track] = {}
        self.graphs: deque[tuple[int, int, int]] = deque(maxlen=256)
        self._ran: list[tuple[int, Track, int]] = []
        """Steps that emitted: number, the device's track, and when."""
        self._waits = Waits()
        self._number = 0

    def told_by(self, teller: str, names: tuple[str, ...], **settings: Any) -> None:
        """Announce what tells these notes. names: those that it will use, beside those that were given out."""
        for name in names:
            self._recorder.name(name)
        self._recorder.noted(teller, os=self._recorder.os_counters, **settings)
        self._waits(self._clock())  # what is made at the first time is made before anyone waits

    def renew(self) -> None:
        """Another thread is looked at from now on."""
        self._waits.close()
        self._waits = Waits()

    def ran(self, step: int, t: int) -> None:
        """A step emitted at `t`, so that the device is done with it. Those that were scheduled before never emit."""
        tracks = self.tracks
        if tracks:
            if (track := tracks.pop(step, None)) is not None:
                self._ran.append((step, track, t))
            for old in [one for one in tracks if one < step]:
                del tracks[old]

    def write(self, notes: list[int], blocked: Callable[[], int]) -> None:
        """Write the notes, if there are any. blocked: asked what keeps the first waiting request out. ValueError,
        TypeError or OverflowError where they cannot be written: the reader sees by their number that some are lost.
        """
        if not notes:
            return
        now, self._number = self._clock(), self._number + 1
        words = [STAMPS, *self._stamps.noted()]
        while self.graphs:
            words += (GRAPH, *self.graphs.popleft())
        ran, self._ran = self._ran, []
        for step, track, t in ran:
            words += self._windows(step, track, t)
        words += notes
        try:
            words += (BLOCKED, blocked())
        except Exception:  # the engine's, and no reason to lose what the hooks saw
            self._hooks.failed()
        if len(words) > _MOST:
            raise ValueError("too many notes")
        self._recorder.note(now, self._waits(now), self._number, array("q", words))

    def _windows(self, step: int, track: Track, t: int) -> list[int]:
        words: list[int] = []
        try:
            if self.device is not None and (found := self.device.windows(track, t)):
                words += (WINDOWS, step, 1, len(found))
                for window in found:
                    words += window
        except Exception:  # the device's, and no reason to lose what the hooks saw
            self._hooks.failed()
        return words
