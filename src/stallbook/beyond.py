"""Summed up as the engine's gaps are, for a report: the first token's wait, gaps at the frontend and at the client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallbook.partition import Partition
from stallbook.run import Ints
from stallbook.tally import Tally
from stallbook.waits import BOUNDARIES, Waits

__all__ = ["AfterEmission", "after_emission", "delivered", "exactness", "tally_waits"]


@dataclass(frozen=True)
class AfterEmission:
    """Gaps of which at least half passed after the engine had emitted the token: no gap of the engine.

    tail_gaps: those at or above the p99. longest_ns: the longest wait after emission among all gaps.
    """

    gaps: int
    tail_gaps: int
    longest_ns: int


def delivered(p: Partition) -> tuple[str, ...]:
    """The boundaries at which the log has deliveries. The rules of the post know of none."""
    present = np.unique(p.run.deliveries.boundary) if p.rules == "full" else ()
    return tuple(name for code, name in enumerate(BOUNDARIES) if code in present)


def tally_waits(waits: Waits) -> Tally:
    """The tally of waits, each counted once."""
    context = dict(zip(waits.causes, waits.context.sum(axis=0).tolist(), strict=True))
    ones = np.ones(len(waits.request), np.int64)
    return Tally(waits.causes, waits.t1 - waits.t0, ones, waits.parts, waits.primary, context)


def exactness(waits: Waits) -> tuple[int, int]:
    """By how many ns a wait and the sum of its parts differ at most, and how many waits have a negative part."""
    error = np.abs(waits.parts.sum(axis=1) - (waits.t1 - waits.t0)).max(initial=0)
    return int(error), int((waits.parts < 0).any(axis=1).sum())


def after_emission(waits: Waits) -> AfterEmission:
    """How much of the gaps at a boundary is not the engine's."""
    after: Ints = np.zeros(len(waits.t0), np.int64)
    for cause in {"frontend", "network"} & set(waits.causes):
        after += waits.parts[:, waits.causes.index(cause)]
    gap = waits.t1 - waits.t0
    mostly = (2 * after >= gap) & (after > 0)
    tail = gap >= (np.percentile(gap, 99) if len(gap) else 0)
    return AfterEmission(int(mostly.sum()), int((mostly & tail).sum()), int(after.max(initial=0)))
