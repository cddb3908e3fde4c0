"""Keeps the truth while faults are planted: its own clock reads, apart from the recorder's.

Besides the windows that faults report it keeps marks, twice a step: wall time and the CPU time of the engine's
thread. Where they disagree, the thread did not run. What of that no fault explains is foreign: a neighbour on this
machine, for which nothing was planted and no right answer is known.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from stallbook.inject.truth import Planted, Truth, Window

__all__ = ["Entry", "Journal", "Span"]

Span = tuple[int, int]

_NOISE_NS: Final = 50_000
"""Time off the CPU between two marks that is not worth a window: an interrupt."""


@dataclass(eq=False, slots=True)
class Entry:
    """One fault in the making. `throttled`: its time is all that the thread lost to the system in these spans."""

    kind: str
    cause: str
    windows: list[Window] = field(default_factory=list)
    throttled: list[Span] = field(default_factory=list)
    competed: list[Span] = field(default_factory=list)

    def add(self, t0: int, t1: int, ns: int | None = None, request: str = "") -> None:
        """Planted time: all of [t0, t1) unless `ns` says how much of it."""
        if t1 > t0:
            self.windows.append(Window(t0, t1, t1 - t0 if ns is None else max(0, ns), request))


class Journal:
    """Of one run."""

    def __init__(self, now: Callable[[], int], cpu: Callable[[], int] = time.thread_time_ns) -> None:
        self.now = now
        self._cpu = cpu
        self._walls, self._cpus = array("q"), array("q")
        self.entries: list[Entry] = []
        self.failed: Counter[str] = Counter()
        self.start = 0
        """Nothing before it is judged: the engine was filling up."""

    def mark(self) -> int:
        """Read both clocks; the time."""
        wall = self.now()
        self._walls.append(wall)
        self._cpus.append(self._cpu())
        return wall

    def open(self, kind: str, cause: str) -> Entry:
        """A fault begins."""
        entry = Entry(kind, cause)
        self.entries.append(entry)
        return entry

    def truth(self, slices: Sequence[Span], unavailable: dict[str, str]) -> Truth:
        """Everything, once the run is over. `slices`: when the competitor had the core, by its own clock, in order."""
        for entry in self.entries:
            entry.windows += [Window(a, b, b - a) for a, b in _within(slices, entry.competed)]
        foreign = self._off_cpu(slices)
        faults = tuple(
            Planted(entry.kind, entry.cause, tuple(sorted(entry.windows, key=lambda w: w.t0)))
            for entry in self.entries
            if entry.windows
        )
        end = self._walls[-1] if self._walls else self.start
        return Truth(self.start, end, faults, tuple(foreign), unavailable, dict(self.failed))

    def _off_cpu(self, slices: Sequence[Span]) -> list[Window]:
        """Give what the thread lost to the faults that throttle it; return the rest, less the competitor's slices."""
        throttled = [(span, entry) for entry in self.entries for span in entry.throttled]
        foreign: list[Window] = []
        at = quota = 0
        for (t0, t1), (c0, c1) in zip(pairwise(self._walls), pairwise(self._cpus), strict=True):
            lost = t1 - t0 - (c1 - c0)
            if lost <= _NOISE_NS:
                continue
            while at < len(slices) and slices[at][1] <= t0:
                at += 1
            lost -= sum(b - a for a, b in _within(_until(slices, at, t1), [(t0, t1)]))
            while quota < len(throttled) and throttled[quota][0][1] <= t0:
                quota += 1
            if quota < len(throttled) and throttled[quota][0][0] < t1:
                throttled[quota][1].add(t0, t1, min(lost, t1 - t0))
            elif lost > _NOISE_NS:
                foreign.append(Window(t0, t1, lost))
        return foreign


def _until(slices: Sequence[Span], at: int, t1: int) -> Iterable[Span]:
    while at < len(slices) and slices[at][0] < t1:
        yield slices[at]
        at += 1


def _within(slices: Iterable[Span], spans: Sequence[Span]) -> list[Span]:
    """The overlaps of slices with spans."""
    return [(max(a, c), min(b, d)) for a, b in slices for c, d in spans if a < d and c < b]
