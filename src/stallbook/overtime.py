"""A run over time: its percentiles, causes, batch, KV tokens and queue in bins of equal length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.counters import origin_ns, wall_ns
from stallbook.partition import Partition
from stallbook.run import NEVER, UNKNOWN, Ints, Run
from stallbook.tally import Distribution
from stallbook.waits import Waits

__all__ = ["MOST_BINS", "OverTime", "ends_of_rows", "occupied", "over_time"]

MOST_BINS: Final = 150
"""However long a run is, it is told in no more bins than this."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OverTime:
    """A value a bin; nan where the bin has none. edges_s: since the run's first stamp, one more than bins.

    p50, p99, max: of the gaps that end in the bin, ms. share: of their time, by cause (bins, causes). gaps: how many.
    batch, kv_tokens: means over the steps that begin in it. running, queued, evicted: requests, on average over its
    time. None: not recorded.
    """

    edges_s: Floats
    causes: tuple[str, ...]
    gaps: Ints
    p50: Floats
    p99: Floats
    max: Floats
    share: Floats
    batch: Floats | None
    kv_tokens: Floats | None
    running: Floats | None
    queued: Floats | None
    evicted: Floats | None

    def __len__(self) -> int:
        return len(self.gaps)


def over_time(p: Partition, waits: Waits | None = None) -> OverTime:
    """The run of a partition in bins; its gaps are the engine's, or those of `waits`."""
    run = p.run
    edges = _edges(run)
    if waits is None:
        ends, gap, weight, parts, causes = ends_of_rows(p), p.row_gap, p.row_weight, p.rows, p.causes
    else:
        ends, gap, parts, causes = waits.t1, waits.t1 - waits.t0, waits.parts, waits.causes
        weight = np.ones(len(gap), np.int64)
    n = len(edges) - 1
    live = weight > 0
    ends, gap, weight, parts = ends[live], gap[live], weight[live], parts[live]
    bins = np.clip(np.searchsorted(edges, ends, "right") - 1, 0, n - 1)
    p50, p99, most = _percentiles(bins, gap, weight, n)
    time = np.stack([_binned(bins, weight.astype(np.float64) * parts[:, k], n) for k in range(len(causes))], axis=1)
    total = _binned(bins, weight.astype(np.float64) * gap, n)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(total[:, None] > 0, time / total[:, None], np.nan)
    r, e = run.requests, run.evictions
    finish = np.where(r.finish == UNKNOWN, edges[-1], r.finish)
    told = r.admit != UNKNOWN
    waited = (r.arrive != UNKNOWN) & told
    recorded = len(e.t0) > 0 or "evictions" in run.records
    return OverTime(
        edges_s=(edges - edges[0]) / 1e9,
        causes=causes,
        gaps=_binned(bins, weight, n).astype(np.int64),
        p50=p50,
        p99=p99,
        max=most,
        share=share,
        batch=_mean_of_steps(run, run.steps.decode_tokens, edges),
        kv_tokens=_mean_of_steps(run, run.steps.kv_tokens, edges),
        running=_requests(r.admit[told], finish[told], edges) if told.any() else None,
        queued=_requests(r.arrive[waited], r.admit[waited], edges) if waited.any() else None,
        evicted=_requests(e.t0, e.t1, edges) if recorded else None,
    )


def ends_of_rows(p: Partition) -> Ints:
    """When the gaps of each row of a partition end, ns."""
    emit = p.rhythm.emit
    return np.concatenate([emit, emit[p.rhythm.ordinal[p.run.emissions.step[p.own]]]])


def occupied(t0: Ints, t1: Ints, edges: Ints) -> Floats:
    """The time that intervals cover between each two edges, ns; where several overlap, each counts."""
    return np.diff(_covered(np.minimum(t0, t1), edges) - _covered(t1, edges))


def _covered(since: Ints, edges: Ints) -> Floats:
    """The time since all these starts up to each edge, summed."""
    starts = np.sort(since) - edges[0]
    at = edges - edges[0]
    begun = np.searchsorted(starts, at, "right")
    upto = np.concatenate([[0.0], np.cumsum(starts.astype(np.float64))])
    return np.asarray(begun * at.astype(np.float64) - upto[begun])


def _edges(run: Run) -> Ints:
    """Bins of a round length from the first stamp to the last."""
    first = origin_ns(run)
    last = max(first + wall_ns(run), int(run.steps.emit.max(initial=first)), first + 1)
    least = (last - first) / MOST_BINS
    power = 10 ** max(np.floor(np.log10(least)), 0.0)
    width = int(next(power * k for k in (1, 2, 5, 10) if power * k >= least))
    return first + width * np.arange(-(-(last - first) // width) + 1, dtype=np.int64)


def _binned(bins: Ints, amount: npt.NDArray[Any], n: int) -> Floats:
    return np.bincount(bins, weights=amount.astype(np.float64), minlength=n).astype(np.float64)


def _percentiles(bins: Ints, gap: Ints, weight: Ints, n: int) -> tuple[Floats, Floats, Floats]:
    """The median, the p99 and the longest gap of each bin, ms."""
    out = np.full((3, n), np.nan)
    order = np.argsort(bins, kind="stable")
    at = np.searchsorted(bins[order], np.arange(n + 1))
    for i in range(n):
        rows = order[at[i] : at[i + 1]]
        if len(rows):
            told = Distribution.of(gap[rows], weight[rows])
            values = (told.percentile(50), told.percentile(99), told.max)
            out[:, i] = [(v or 0.0) / 1e6 for v in values]
    return out[0], out[1], out[2]


def _mean_of_steps(run: Run, values: Ints, edges: Ints) -> Floats | None:
    """The mean over the steps that begin in each bin; those whose value is not known are left out."""
    known = (values >= 0) & (run.steps.t0 != UNKNOWN)
    if not known.any():
        return None
    n = len(edges) - 1
    bins = np.clip(np.searchsorted(edges, run.steps.t0[known], "right") - 1, 0, n - 1)
    steps = np.bincount(bins, minlength=n)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(steps > 0, _binned(bins, values[known], n) / steps, np.nan)


def _requests(t0: Ints, t1: Ints, edges: Ints) -> Floats:
    """How many requests were between two of their stamps, on average over each bin."""
    end = np.minimum(np.where(t1 >= NEVER, edges[-1], t1), edges[-1])
    return occupied(np.minimum(t0, end), end, edges) / np.diff(edges)
