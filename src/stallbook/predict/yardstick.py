"""How fast the machine was at every step, from work that each step does and that no setting changes much.

A step that only decodes does the same bookkeeping before its pass as every other step with as many rows. So what it
took, over what it usually takes, is the machine's speed at that moment: hundreds of samples a second that cost nothing.

On 54 pairs of recorded runs (a baseline of 45 to 60 s and another rung) what it told of the second was 3.3% (rms) off
the speed of its decodes; the probe, timed four times a second, 4.9% by its low quantile and 7.5% by its median.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallbook.predict.observed import Observed
from stallbook.predict.speed import BIN_NS, Series
from stallbook.run import Ints

__all__ = ["Yardstick", "yardstick_of"]

WINDOW_NS: Final = 2_000_000_000
SEEN: Final = 30
"""So often a batch size must have been seen before its steps tell anything."""
LEAST: Final = 20
"""Fewer steps than this within a window tell nothing."""
HELD_UP: Final = 3.0
"""What takes longer than so many times what is usual was held up: it counts as that much."""


@dataclass(frozen=True)
class Yardstick:
    """What bookkeeping took in the steps of one run that only decode: the median in ns, by rows."""

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
        edges = np.arange(t[0], t[-1] + BIN_NS, BIN_NS)
        low, high = (np.searchsorted(t, edges + way * WINDOW_NS // 2) for way in (-1, 1))
        enough = high - low >= LEAST
        if not enough.any():
            return None
        values = (taken[high] - taken[low])[enough] / (usual[high] - usual[low])[enough]
        return Series(int(t[0]), np.interp(np.arange(len(edges)), np.flatnonzero(enough), values))


def yardstick_of(seen: Observed) -> Yardstick:
    """The yardstick of a run."""
    _, rows, ns = _plain(seen)
    sizes, counts = np.unique(rows, return_counts=True)
    return Yardstick({n: float(np.median(ns[rows == n])) for n in sizes[counts >= SEEN].tolist()})


def _plain(seen: Observed) -> tuple[Ints, Ints, Ints]:
    """The steps that only decode: when they began, their rows, and what came before their pass."""
    steps, segments, ns = seen.run.steps, seen.run.segments, seen.tables["sched"]["ns"]
    plain = (steps.decode_tokens > 0) & (ns > 0)
    for name in ("prefill", "swap"):
        plain[seen.tables[name]["step"]] = False
    if "tok" in seen.run.names:
        plain[segments.step[segments.name == seen.run.names.index("tok")]] = False
    return steps.t0[plain], steps.decode_tokens[plain], ns[plain]
