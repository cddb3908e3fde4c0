"""How fast the machine was at every step, from work that each step does and that no setting changes much.

A step that only decodes does the same bookkeeping before its pass as every other step with as many rows. So what it
took, over what it usually takes, is the machine's speed at that moment: hundreds of samples a second that cost nothing.

On 54 pairs of recorded runs (a baseline of 45 to 60 s and another rung) what it told of the second was 3.1% (rms) off
the speed of its decodes; the probe, timed four times a second, 4.8% by its low quantile and 7.7% by its median.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from stallbook.predict.observed import Observed
from stallbook.predict.speed import BIN_NS, Series
from stallbook.run import Ints

__all__ = ["Yardstick", "yardstick_of"]

WINDOW_NS: Final = 2_000_000_000
SEEN: Final = 30
"""So often a batch size must have been seen before its steps tell anything."""
MOMENT_NS: Final = 1_000_000_000
MOMENTS: Final = 240
"""A longer run has no more moments than this, but longer ones: the sizes are found by solving for all at once."""
LEAST: Final = 20
"""Fewer steps than this within a window tell nothing."""
HELD_UP: Final = 3.0
"""What takes longer than so many times what is usual was held up: it counts as that much."""


@dataclass(frozen=True)
class Yardstick:
    """What bookkeeping takes in the steps of one run that only decode: ns by rows, at the run's usual speed."""

    usual: Mapping[int, float]

    def series(self, seen: Observed) -> Series | None:
        """How much longer than usual the bookkeeping of a run took over time; None where too little of it was seen."""
        t, rows, ns = _plain(seen)
        due = np.array([self.usual.get(n, 0.0) for n in rows.tolist()])
        known = due > 0
        if int(known.sum()) < LEAST:
            return None
        t, due, ns = t[known], due[known], ns[known]
        taken, usual = (np.concatenate([[0.0], np.cumsum(one)]) for one in (np.minimum(ns, HELD_UP * due), due))
        edges = np.arange(seen.origin, t[-1] + BIN_NS, BIN_NS)
        low, high = (np.searchsorted(t, edges + way * WINDOW_NS // 2) for way in (-1, 1))
        enough = high - low >= LEAST
        if not enough.any():
            return None
        values = (taken[high] - taken[low])[enough] / (usual[high] - usual[low])[enough]
        return Series(seen.origin, np.interp(np.arange(len(edges)), np.flatnonzero(enough), values))


def yardstick_of(seen: Observed) -> Yardstick:
    """The yardstick of a run.

    A size that was met mostly while the machine was slow is not costly for that: sizes and moments are found together,
    ln ns = size + moment, from the median of each size within each moment. Least squares, weighed by steps.
    """
    t, rows, ns = _plain(seen)
    sizes, counts = np.unique(rows, return_counts=True)
    often = np.isin(rows, sizes[counts >= SEEN])
    size, n_sizes = _numbered(rows[often])
    span = max(MOMENT_NS, int(t[-1] - seen.origin) // MOMENTS) if len(t) else MOMENT_NS
    moment, n_moments = _numbered((t[often] - seen.origin) // span)
    cell, n_cells = _numbered(size * n_moments + moment)
    if not n_cells:
        return Yardstick({})
    order = np.argsort(cell, kind="stable")
    bounds = np.searchsorted(cell[order], np.arange(n_cells + 1)).tolist()
    log = np.log(ns[often])[order]
    middle = np.array([np.median(log[a:b]) for a, b in pairwise(bounds)])
    steps, first = np.diff(bounds), order[bounds[:-1]]
    design = np.zeros((n_cells, n_sizes + n_moments))
    design[np.arange(n_cells), size[first]] = design[np.arange(n_cells), n_sizes + moment[first]] = 1.0
    weight = np.sqrt(steps)
    found, *_ = np.linalg.lstsq(design * weight[:, None], middle * weight, rcond=None)
    usual = found[:n_sizes] + np.average(found[n_sizes + moment[first]], weights=steps)
    return Yardstick(dict(zip(sizes[counts >= SEEN].tolist(), np.exp(usual).tolist(), strict=True)))


def _numbered(keys: Ints) -> tuple[Ints, int]:
    """Each key's place among all that occur, and how many these are."""
    known, place = np.unique(keys, return_inverse=True)
    return place, len(known)


def _plain(seen: Observed) -> tuple[Ints, Ints, Ints]:
    """The steps that only decode: when they began, their rows, and what came before their pass."""
    steps, segments, ns = seen.run.steps, seen.run.segments, seen.tables["sched"]["ns"]
    plain = (steps.decode_tokens > 0) & (ns > 0)
    for name in ("prefill", "swap"):
        plain[seen.tables[name]["step"]] = False
    if "tok" in seen.run.names:
        tok = (segments.name == seen.run.names.index("tok")) & (segments.step >= 0)
        plain[segments.step[tok]] = False
    return steps.t0[plain], steps.decode_tokens[plain], ns[plain]
