"""Exact tests of two sets of runs: how often would chance alone move their means as far apart?

Paired by seed, the sign of each change may be flipped; unpaired, the runs may be dealt anew to the two sides. Every
way is counted where there are at most `EXACT_LIMIT`; beyond that as many are drawn, the same ones each time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["EXACT_LIMIT", "any_moved_p", "deals", "flips", "is_exact", "sign_flip_p", "split_p"]

EXACT_LIMIT: Final = 2**16
"""Above this many ways they are drawn (from a fixed seed) and not enumerated."""

Floats = npt.NDArray[np.float64]


def is_exact(before: int, after: int, *, paired: bool) -> bool:
    """Whether every way is counted."""
    return (2**after if paired else math.comb(before + after, after)) <= EXACT_LIMIT


@lru_cache
def flips(pairs: int) -> Floats:
    """A row a way to flip the signs; the first flips none, or all, which is as far from zero."""
    if 2**pairs <= EXACT_LIMIT:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=pairs)))
    drawn = np.random.default_rng(0).choice((-1.0, 1.0), size=(EXACT_LIMIT, pairs))
    return np.vstack([np.ones(pairs), drawn])


@lru_cache
def deals(before: int, after: int) -> Floats:
    """A row a way to deal runs to two sides of these sizes: 1 for the second side, 0 for the first; the true one first.

    The runs stand in one row, those of the first side first.
    """
    total = before + after
    if math.comb(total, after) <= EXACT_LIMIT:
        chosen = np.array(list(itertools.combinations(range(total), after)), np.int64)[::-1]
    else:
        ranked = np.random.default_rng(0).random((EXACT_LIMIT, total)).argsort(axis=1)[:, :after]
        chosen = np.vstack([np.arange(before, total), ranked])
    dealt = np.zeros((len(chosen), total))
    np.put_along_axis(dealt, chosen, 1.0, axis=1)
    return dealt


def sign_flip_p(changes: Sequence[float]) -> float:
    """How often flipping the signs of the changes gives a mean at least as far from zero: 1.0 for none."""
    if not changes:
        return 1.0
    values = np.array(changes, dtype=np.float64)
    return _as_far(np.abs(flips(len(values)) @ values), abs(float(values.sum())), float(np.abs(values).sum()))


def split_p(before: Sequence[float], after: Sequence[float]) -> float:
    """How often dealing all values anew to the two sides parts their means at least as far: 1.0 for none."""
    if not before or not after:
        return 1.0
    values = np.array([*before, *after], np.float64)
    values -= values.mean()
    moved = deals(len(before), len(after)) @ values  # the values are centred: this sum fixes the difference of means
    return _as_far(np.abs(moved), abs(float(values[len(before) :].sum())), float(np.abs(values).sum()))


def _as_far(found: Any, seen: float, scale: float) -> float:
    """Equal sums differ in the last bits with the order of addition; a tie has to count."""
    return float(np.mean(found >= seen - 1e-9 * scale))


def any_moved_p(before: Floats, after: Floats, *, paired: bool) -> float:
    """One test of many figures at once: how often would chance alone give any of them so large a change?

    before, after: a row a figure, a column a run. Each figure's change counts in its own standard errors, and the
    largest of all figures is what is compared.
    """
    if not len(before):
        return 1.0
    if paired:
        changes = after - before
        ways = flips(changes.shape[1])
        found, seen = _flipped_t(ways, changes), _flipped_t(np.ones((1, changes.shape[1])), changes)
    else:
        every = np.concatenate([before, after], axis=1)
        ways = deals(before.shape[1], after.shape[1])
        true = np.concatenate([np.zeros(before.shape[1]), np.ones(after.shape[1])])[None]
        found, seen = _dealt_t(ways, every), _dealt_t(true, every)
    return float(np.mean(found.max(axis=1) >= seen.max() * (1 - 1e-9)))


def _flipped_t(ways: Floats, changes: Floats) -> Floats:
    """The size of each figure's mean change in standard errors, a row a way."""
    runs = changes.shape[1]
    mean = ways @ changes.T / runs
    square = (changes**2).mean(axis=1)  # flipping a sign leaves it
    return _ratio(mean, np.sqrt(np.maximum(square - mean**2, 0)))


def _dealt_t(ways: Floats, values: Floats) -> Floats:
    after = ways.sum(axis=1, keepdims=True)
    before = values.shape[1] - after
    values = values - values.mean(axis=1, keepdims=True)
    in_after = ways @ values.T
    apart = in_after / after + in_after / before
    within = (values**2).sum(axis=1) - in_after**2 / after - in_after**2 / before
    return _ratio(apart, np.sqrt(np.maximum(within, 0)))


def _ratio(change: Floats, error: Floats) -> Floats:
    """Where nothing scatters, any change is as large as can be."""
    floor = 1e-9 * np.abs(change).max(axis=0, keepdims=True) + 1e-300
    out: Floats = np.abs(change) / np.maximum(error, floor)
    return out
