"""Keeps the truth while faults are planted: its own clock reads, apart from the recorder's.

Besides the windows that faults report it keeps marks, twice a step: wall time and the CPU time of the engine's
thread. Where they disagree, the thread did not run. What of that no fault explains is foreign: a neighbour on this
machine, for which nothing was planted and no right answer is known. So is what a neighbour takes without having the
core, from the caches, the memory, or the other thread of a core: a forward pass that no fault touched and that took far
more CPU time than is usual was hindered.
"""

from __future__ import annotations

import bisect
import statistics
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from stallbook.inject.truth import Planted, Truth, Window

__all__ = ["Entry", "Journal", "Span", "hindered"]

Span = tuple[int, int]

_NOISE_NS: Final = 50_000
"""Time off the CPU between two marks that is not worth a window: an interrupt."""
AROUND: Final = 50
HINDERED: Final = 1.5
EXPLAINED: Final = 0.75
"""The part of a loss that the competitor, or the quota, must account for to own it."""


@dataclass(eq=False, slots=True)
class Entry:
    """One fault in the making. `throttled`, `competed`: it owns what the thread lost in these spans, if the
    control group's own counter, or the competitor's own clock, says so."""

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
        self.throttled: Callable[[], int] | None = None
        self._stops: list[tuple[int, int]] = []
        self._passes: list[tuple[int, int, int, int]] = []
        self.entries: list[Entry] = []
        self.start = 0
        """Nothing before it is judged: the engine was filling up."""

    def mark(self) -> int:
        """Read both clocks; the time.

        Wall time comes last: a thread is switched out where a system call returns, and so in the mark that ends a loss.
        """
        cpu = self._cpu()
        stopped = self.throttled() if self.throttled is not None else -1
        wall = self.now()
        self._walls.append(wall)
        self._cpus.append(cpu)
        if stopped >= 0:
            self._stops.append((wall, stopped))
        return wall

    def watch(self, throttled: Callable[[], int] | None) -> None:
        """A quota begins, whose counter says for how many ns in all it kept the group from its core; None: it ends."""
        self.throttled = throttled
        if throttled is not None:
            self._stops.append((self._walls[-1], throttled()))

    def cpu(self) -> int:
        """CPU time of the engine's thread."""
        return self._cpu()

    def passed(self, t0: int, t1: int, cpu: int, padded: int) -> None:
        """A forward pass that no fault touched."""
        self._passes.append((t0, t1, cpu, padded))

    def open(self, kind: str, cause: str) -> Entry:
        """A fault begins."""
        entry = Entry(kind, cause)
        self.entries.append(entry)
        return entry

    def truth(self, slices: Sequence[Span], unavailable: dict[str, str]) -> Truth:
        """Everything, once the run is over. `slices`: when the competitor had the core, by its own clock, in order."""
        foreign = self._off_cpu(slices)
        faults = tuple(
            Planted(entry.kind, entry.cause, tuple(sorted(entry.windows, key=lambda w: w.t0)))
            for entry in self.entries
            if entry.windows
        )
        failed = Counter(entry.kind for entry in self.entries if not entry.windows)
        end = self._walls[-1] if self._walls else self.start
        return Truth(self.start, end, faults, tuple(foreign), tuple(hindered(self._passes)), unavailable, dict(failed))

    def _off_cpu(self, slices: Sequence[Span]) -> list[Window]:
        """Give each fault from outside what the thread lost to it; return what it lost otherwise.

        What was lost under a quota is the quota's if the control group was stopped for most of it; beside the
        competitor, the competitor's if by its own clock it had the core for most of it. The rest of such a loss is
        switching. The machine under this one takes its time under either, too.
        """
        competed = _Spans([(span, entry) for entry in self.entries for span in entry.competed])
        throttled = _Spans([(span, entry) for entry in self.entries for span in entry.throttled])
        running = _Spans([(span, None) for span in slices])
        foreign: list[Window] = []
        for (t0, t1), (c0, c1) in zip(pairwise(self._walls), pairwise(self._cpus), strict=True):
            lost = min(t1 - t0 - (c1 - c0), t1 - t0)
            if lost <= _NOISE_NS:
                continue
            rival = sum(min(b, t1) - max(a, t0) for (a, b), _ in running.across(t0, t1))
            quota, competitor = throttled.across(t0, t1), competed.across(t0, t1)
            if quota and quota[0][1] and self._stopped(t0, t1) >= EXPLAINED * lost:
                quota[0][1].add(t0, t1, lost)
            elif competitor and competitor[0][1] and rival >= EXPLAINED * lost:
                competitor[0][1].add(t0, t1, lost)
            else:
                foreign.append(Window(t0, t1, lost))
        return foreign

    def _stopped(self, t0: int, t1: int) -> int:
        """For how long a quota kept the thread from its core between two marks."""
        after = bisect.bisect_right(self._stops, t1, key=lambda stop: stop[0]) - 1
        before = bisect.bisect_right(self._stops, t0, key=lambda stop: stop[0]) - 1
        return self._stops[after][1] - self._stops[max(before, 0)][1] if after >= 0 else 0


def hindered(passes: Sequence[tuple[int, int, int, int]]) -> list[Window]:
    """Passes (t0, t1, CPU ns, padded rows) that took far more than is usual for their size, and how much.

    Usual is the median of the run, or that of the passes around them if it is less: the machine's speed may drift.
    """
    found: list[Window] = []
    sizes: dict[int, list[tuple[int, int, int, int]]] = {}
    for one in passes:
        sizes.setdefault(one[3], []).append(one)
    for alike in sizes.values():
        whole = statistics.median(cpu for _, _, cpu, _ in alike)
        for at in range(0, len(alike), AROUND):
            block = alike[max(0, min(at, len(alike) - AROUND)) : at + AROUND]
            usual = min(whole, statistics.median(cpu for _, _, cpu, _ in block))
            found += [
                Window(t0, t1, int(cpu - usual)) for t0, t1, cpu, _ in alike[at : at + AROUND] if cpu > HINDERED * usual
            ]
    return sorted(found, key=lambda w: w.t0)


class _Spans:
    """Disjoint spans in order of time, asked for in that order."""

    def __init__(self, spans: list[tuple[Span, Entry | None]]) -> None:
        self._spans, self._at = spans, 0

    def across(self, t0: int, t1: int) -> list[tuple[Span, Entry | None]]:
        """Those that overlap [t0, t1)."""
        spans = self._spans
        while self._at < len(spans) and spans[self._at][0][1] <= t0:
            self._at += 1
        last = self._at
        while last < len(spans) and spans[last][0][0] < t1:
            last += 1
        return spans[self._at : last]
