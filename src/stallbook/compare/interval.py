"""How large a change may be: a bootstrap interval, where there are runs enough for one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

__all__ = ["LEAST_RUNS", "bootstrap"]

LEAST_RUNS: Final = 8
"""Fewer pairs, or runs a side, than this are too few to draw from: the interval would be too short."""
DRAWS: Final = 4000


def bootstrap(
    before: Sequence[float], after: Sequence[float], *, paired: bool, ratio: bool
) -> tuple[float, float] | None:
    """95% of the median changes of runs drawn anew, from a fixed seed; ratios less 1, or differences.

    None with fewer than `LEAST_RUNS`, or where a ratio has no meaning.
    """
    if min(len(before), len(after)) < LEAST_RUNS or (ratio and min(*before, *after) <= 0):
        return None
    one, two = (np.log(side) if ratio else np.array(side, np.float64) for side in (before, after))
    random = np.random.default_rng(0)
    if paired:
        drawn = random.integers(0, len(one), (DRAWS, len(one)))
        changes = np.median((two - one)[drawn], axis=1)
    else:
        first, second = (random.integers(0, len(side), (DRAWS, len(side))) for side in (one, two))
        changes = np.median(two[second], axis=1) - np.median(one[first], axis=1)
    low, high = (float(value) for value in np.percentile(changes, (2.5, 97.5)))
    return (math.expm1(low), math.expm1(high)) if ratio else (low, high)
