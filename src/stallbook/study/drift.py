"""Did the machine hold still? The probe's samples of a run, the speed of each cell, and the mark on a drifting study.

**Normalising.** A cell's speed factor is the median probe time of its run over the study's median of these medians:
1.10 is a machine 10% slower than the study's middle. A normalised time is the measured time divided by its run's
factor, a normalised rate the measured rate times it. This is first order only: it takes every time to scale with the
machine, one factor a run. Near saturation queueing amplifies a slow machine, and a factor within a run may move.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stallbook.compare.alike import DRIFT_LIMIT
from stallbook.run import Ints

__all__ = ["DRIFT_LIMIT", "Drift", "drift_of", "probe_summary", "speed_factors"]

CellKey = tuple[str, int]


def probe_summary(ns: Ints) -> dict[str, float | int | None]:
    """What a results line keeps of a run's probe: how many samples, and their median and middle 80%."""
    if not len(ns):
        return {"samples": 0, "median_ns": None, "p10_ns": None, "p90_ns": None}
    low, middle, high = (float(x) for x in np.percentile(ns, [10, 50, 90]))
    return {"samples": len(ns), "median_ns": middle, "p10_ns": low, "p90_ns": high}


def speed_factors(lines: Iterable[Mapping[str, Any]]) -> dict[CellKey, float]:
    """The speed factor of each cell that has probe samples (see the module)."""
    medians = _medians(lines)
    if not medians:
        return {}
    middle = statistics.median(medians.values())
    return {cell: median / middle for cell, median in medians.items()}


@dataclass(frozen=True)
class Drift:
    """How far the probe's speed moved across cells. `spread` 0.12: the slowest cell is 12% slower than the fastest."""

    cells: int
    median_ns: float | None
    spread: float
    worst_seed: int | None
    worst_seed_spread: float
    """The largest spread within one seed: what the paired verdicts see."""

    @property
    def marked(self) -> bool:
        """Whether the study carries the mark."""
        return self.spread > DRIFT_LIMIT


def drift_of(lines: Iterable[Mapping[str, Any]]) -> Drift:
    """The drift of a study from its results."""
    medians = _medians(lines)
    if not medians:
        return Drift(0, None, 0.0, None, 0.0)
    by_seed: dict[int, list[float]] = {}
    for (_, seed), median in medians.items():
        by_seed.setdefault(seed, []).append(median)
    spreads = {seed: _spread(values) for seed, values in by_seed.items()}
    worst = max(spreads, key=lambda seed: (spreads[seed], -seed))
    values = list(medians.values())
    return Drift(len(values), statistics.median(values), _spread(values), worst, spreads[worst])


def _spread(values: list[float]) -> float:
    return max(values) / min(values) - 1.0


def _medians(lines: Iterable[Mapping[str, Any]]) -> dict[CellKey, float]:
    found = {(str(x["rung"]), int(x["seed"])): x.get("probe", {}).get("median_ns") for x in lines}
    return {cell: float(median) for cell, median in found.items() if median}
