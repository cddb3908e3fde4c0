"""What the p99 cannot see: the longest gaps one by one, and how much time all long ones held up.

Of each of the worst, how many of the live streams stopped at that time: the cheapest test of a cause. What stops the
engine stops all of them; an eviction, a hold or a batch without the request stops the request alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from stallbook.causes import CLEAN
from stallbook.counters import origin_ns
from stallbook.intervals import bisect
from stallbook.partition import Partition
from stallbook.run import NEVER, Ints
from stallbook.tally import Distribution, weighed
from stallbook.waits import BOUNDARIES, Waits

__all__ = ["LEAST_NS", "MEDIANS", "Scope", "Stall", "Stalls", "Streams", "find_stalls", "find_streams"]

MEDIANS: Final = 10
"""A stall is a gap over this many medians of the run's own gaps ..."""
LEAST_NS: Final = 100_000_000
"""... and over this: a shorter stop is not seen by a reader."""
KEPT: Final = 20
"""Stalls told one by one."""
CANDIDATES: Final = 4096
"""The longest rows among which these are looked for; ties are all looked at."""

Scope = Literal["all", "some", "one", "alone"]


@dataclass(frozen=True)
class Stall:
    """One of the longest gaps; gaps of one and the same interval and primary cause are one stall.

    request, parts_ns: of one of these gaps. start_ns: since the first stamp of the run. streams: how many gaps it
    stands for. live: requests that were between two of their emissions at the middle of the stall. stopped: those of
    them whose gap at that time covers half of the stall or more, this one included.
    """

    request: str
    start_ns: int
    length_ns: int
    streams: int
    parts_ns: dict[str, int]
    primary: str
    live: int
    stopped: int

    @property
    def scope(self) -> Scope:
        """Which of the live streams stopped; "alone" where there was no other."""
        if self.live == 1:
            return "alone"
        return "all" if self.stopped == self.live else "one" if self.stopped == 1 else "some"


@dataclass(frozen=True)
class Stalls:
    """Gaps over a threshold. stalled_ns: their time above it, summed; share: of the time of all gaps.

    of_causes: the worst of each primary cause that none of `worst` has.
    """

    threshold_ns: int
    count: int
    stalled_ns: int
    share: float
    max_ns: int
    median_ns: float
    worst: tuple[Stall, ...]
    of_causes: tuple[Stall, ...] = ()


@dataclass(frozen=True)
class Streams:
    """When each request had tokens: stamps by (request, time), and the rows [lo, hi) of each `request`."""

    request: Ints
    t: Ints
    lo: Ints
    hi: Ints


@dataclass(frozen=True)
class _Longest:
    """The rows to look at, the longest first. gap: the row of the partition or of the waits; in ns."""

    row: Ints
    t0: Ints
    t1: Ints
    weight: Ints
    primary: Ints


def find_stalls(p: Partition, waits: Waits | None = None, boundary: str = "engine") -> Stalls:
    """The stalls among the engine's gaps, or among `waits`, which are the gaps at `boundary`."""
    gap = p.row_gap if waits is None else waits.t1 - waits.t0
    weight = p.row_weight if waits is None else np.ones(len(gap), np.int64)
    median = Distribution.of(gap, weight).percentile(50) or 0.0
    threshold = min(max(round(MEDIANS * median), LEAST_NS), NEVER)
    above, total = np.where(gap > threshold, weight, 0), int(weighed(weight, gap))
    stalled = int(weighed(above, np.maximum(gap - threshold, 0)))
    longest = int(gap[weight > 0].max(initial=0))
    share = stalled / total if total else 0.0
    found = _worst(p, waits, boundary, gap, weight)
    return Stalls(threshold, int(above.sum()), stalled, share, longest, median, found[:KEPT], found[KEPT:])


def _worst(p: Partition, waits: Waits | None, boundary: str, gap: Ints, weight: Ints) -> tuple[Stall, ...]:
    """The longest, `KEPT` of them at most, and only then the longest of each other primary cause."""
    found = _longest(p, waits, gap, weight)
    first, count = _groups(p, found)
    if not len(first):
        return ()
    causes, parts = (p.causes, p.rows) if waits is None else (waits.causes, waits.parts)
    streams, origin, names, out = find_streams(p, boundary), origin_ns(p.run), p.run.requests.names, []
    for i, n in zip(first.tolist(), count.tolist(), strict=True):
        row, t0, t1 = int(found.row[i]), int(found.t0[i]), int(found.t1[i])
        request = _request(p, row) if waits is None else int(waits.request[row])
        told = {c: ns for c, ns in zip(causes, parts[row].tolist(), strict=True) if ns}
        primary = causes[found.primary[i]] if found.primary[i] >= 0 else CLEAN
        out.append(Stall(names[request], t0 - origin, t1 - t0, n, told, primary, *_stopped(streams, t0, t1)))
    return tuple(out)


def _longest(p: Partition, waits: Waits | None, gap: Ints, weight: Ints) -> _Longest:
    row = np.flatnonzero((weight > 0) & (gap > 0))
    if len(row) > CANDIDATES:
        at = len(row) - CANDIDATES
        row = row[gap[row] >= np.partition(gap[row], at)[at]]
    row = row[np.argsort(-gap[row], kind="stable")]
    if waits is not None:
        return _Longest(row, waits.t0[row], waits.t1[row], weight[row], waits.primary[row])
    own = row - len(p.rhythm.emit)
    t1 = p.rhythm.emit[np.where(own < 0, row, 0)]
    t1[own >= 0] = p.rhythm.emit[p.rhythm.ordinal[p.run.emissions.step[p.own[own[own >= 0]]]]]
    return _Longest(row, t1 - gap[row], t1, weight[row], p.row_primary[row])


def _groups(p: Partition, found: _Longest) -> tuple[Ints, Ints]:
    """The first of each group of rows with one interval of steps and one primary cause, and its gaps; longest first."""
    emit = p.rhythm.emit
    frm, to = np.searchsorted(emit, found.t0, "right"), np.searchsorted(emit, found.t1, "right")
    key = (frm * (len(emit) + 1) + to) * (int(found.primary.max(initial=0)) + 2) + found.primary + 1
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    count = np.bincount(group, weights=found.weight, minlength=len(first)).astype(np.int64)
    order = np.argsort(first)
    _, led = np.unique(found.primary[first[order]], return_index=True)
    best = np.concatenate([order[:KEPT], order[np.sort(led[led >= KEPT])]])
    return first[best], count[best]


def _request(p: Partition, row: int) -> int:
    """A request that has the gap of a row."""
    e, rhythm = p.run.emissions, p.rhythm
    if row >= len(rhythm.emit):
        return int(e.request[p.own[row - len(rhythm.emit)]])
    end = np.flatnonzero(e.step == rhythm.step[row])
    end = end[end > 0]
    end = end[(e.request[end] == e.request[end - 1]) & (e.step[end - 1] == rhythm.step[row - 1])]
    return int(e.request[np.setdiff1d(end, p.own)[0]])


def find_streams(p: Partition, boundary: str) -> Streams:
    """When each request had tokens, at the engine or at a boundary beyond it."""
    if boundary == "engine":
        e = p.run.emissions
        request, t = e.request, p.rhythm.emit[p.rhythm.ordinal[e.step]]
    else:
        d = p.run.deliveries
        rows = np.flatnonzero((d.boundary == BOUNDARIES.index(boundary)) & (d.tokens > 0))
        request, t = d.request[rows], d.t[rows]
    lo = np.flatnonzero(np.diff(request, prepend=-1))
    return Streams(request[lo], t, lo, np.append(lo[1:], len(request)))


def _stopped(streams: Streams, t0: int, t1: int) -> tuple[int, int]:
    """How many streams were live at the middle of a stall, and how many of them stood still for half of it."""
    middle = (t0 + t1) // 2
    after = bisect(streams.t, streams.lo, streams.hi, np.full(len(streams.lo), middle + 1))
    after = after[(after > streams.lo) & (after < streams.hi)]
    still = np.minimum(streams.t[after], t1) - np.maximum(streams.t[after - 1], t0)
    return len(after), int((2 * still >= t1 - t0).sum())
