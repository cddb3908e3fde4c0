"""Median and range over runs: how a set of runs is shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Spread", "spread"]


@dataclass(frozen=True)
class Spread:
    """Median and range across runs."""

    median: float
    low: float
    high: float
    runs: int

    def overlaps(self, other: Spread) -> bool:
        """Whether the two ranges have a point in common."""
        return self.low <= other.high and other.low <= self.high


def spread(values: Iterable[float | None]) -> Spread | None:
    """Median and range of the values that are known; None where there is none."""
    known = [value for value in values if value is not None]
    return Spread(statistics.median(known), min(known), max(known), len(known)) if known else None
