"""Arithmetic on half-open integer intervals, vectorised: subtract one set from another, resolve overlaps."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from stallbook.run import Ints

__all__ = [
    "EXACT",
    "before",
    "bisect",
    "expand",
    "mul_div",
    "overlapping",
    "resolve",
    "spans",
    "subtract",
    "sums",
    "union",
]


EXACT = 2**53
"""Whole numbers below it are exact in floating point: 104 days in nanoseconds."""


def mul_div(a: Ints, b: Ints, c: Ints) -> Ints:
    """floor(a * b / c) for 0 <= a, 0 <= b <= c, 0 < c, where a * b may exceed 64 bits.

    The quotient is guessed in floating point; the product wraps, and so does the guess times c, so their
    difference is the true remainder of the guess, which says by how much it was off. That holds for c < `EXACT`.
    """
    if (wide := c >= EXACT).any():
        out = mul_div(a, np.where(wide, 0, b), np.where(wide, 1, c))
        out[wide] = a[wide].astype(object) * b[wide] // c[wide]
        return out
    guess = np.floor(a * (b / c)).astype(np.int64)
    with np.errstate(over="ignore"):
        off = a * b - guess * c
    return guess + np.floor_divide(off, c)


def sums(group: Ints, amount: Ints, n: int) -> Ints:
    """The total of the amounts, none negative, of each of n groups."""
    total = np.bincount(group, weights=amount, minlength=n)
    if total.max(initial=0) < EXACT:
        return total.astype(np.int64)
    exact = np.zeros(n, np.int64)
    np.add.at(exact, group, amount)
    return exact


def before(group: Ints, amount: Ints) -> Ints:
    """For each row the sum of the earlier amounts of its group; the rows of a group stand together."""
    total = np.cumsum(amount) - amount
    first = np.flatnonzero(np.diff(group, prepend=group[:1] - 1))
    return np.asarray(total - np.repeat(total[first], np.diff(np.append(first, len(group)))))


def union(t0: Ints, t1: Ints) -> tuple[Ints, Ints]:
    """The union of intervals as disjoint, sorted ones that do not touch. Empty intervals own nothing."""
    keep = t1 > t0
    t0, t1 = t0[keep], t1[keep]
    if not len(t0):
        return t0, t1
    order = np.argsort(t0, kind="stable")
    t0, reach = t0[order], np.maximum.accumulate(t1[order])
    first = np.ones(len(t0), bool)
    first[1:] = t0[1:] > reach[:-1]
    last = np.append(first[1:], True)
    return t0[first], reach[last]


def spans(a0: Ints, a1: Ints, b0: Ints, b1: Ints) -> tuple[Ints, Ints]:
    """For each interval of A the range [lo, hi) of B that overlaps it. Both sorted and disjoint."""
    before = np.bincount(np.searchsorted(a0, b1, "left"), minlength=len(a0) + 1)
    begun = np.bincount(np.searchsorted(a1, b0, "right"), minlength=len(a0) + 1)
    return np.cumsum(before)[:-1], np.cumsum(begun)[:-1]


def subtract(a0: Ints, a1: Ints, b0: Ints, b1: Ints) -> tuple[Ints, Ints, Ints]:
    """A less B, both sorted and disjoint: (start, end, row of A) of what is left, sorted."""
    rows = np.arange(len(a0))
    if not len(b0) or not len(a0):
        return a0, a1, rows
    lo, hi = spans(a0, a1, b0, b1)
    cuts = np.maximum(hi - lo, 0)
    if not cuts.any():
        return a0, a1, rows
    row = np.repeat(rows, cuts + 1)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(cuts + 1) - cuts - 1, cuts + 1)
    hole = lo[row] + nth
    last = len(b0) - 1
    start = np.where(nth == 0, a0[row], np.maximum(b1[np.clip(hole - 1, 0, last)], a0[row]))
    end = np.where(nth == cuts[row], a1[row], np.minimum(b0[np.clip(hole, 0, last)], a1[row]))
    keep = end > start
    return start[keep], end[keep], row[keep]


def overlapping(t0: Ints, t1: Ints) -> bool:
    """Whether any two of the intervals, sorted by start, overlap."""
    return len(t0) > 1 and bool((np.maximum.accumulate(t1[:-1]) > t0[1:]).any())


def resolve(t0: Ints, t1: Ints, priority: Sequence[Any]) -> tuple[Ints, Ints, Ints]:
    """Give each instant to the covering interval with the least `priority`: (start, end, row), disjoint, sorted.

    The intervals are sorted by start. Only groups that overlap are walked one by one; the rest is untouched.
    """
    if not overlapping(t0, t1):
        return t0, t1, np.arange(len(t0))
    reach = np.maximum.accumulate(t1)
    new = np.ones(len(t0), bool)
    new[1:] = t0[1:] >= reach[:-1]
    group = np.cumsum(new) - 1
    alone = np.bincount(group)[group] == 1
    pieces: list[tuple[int, int, int]] = []
    for rows in np.split(np.flatnonzero(~alone), np.flatnonzero(np.diff(group[~alone])) + 1):
        pieces += _sweep(t0, t1, priority, rows.tolist())
    lone = np.flatnonzero(alone)
    walked = np.array(pieces, np.int64).reshape(-1, 3)
    start = np.concatenate([t0[lone], walked[:, 0]])
    order = np.argsort(start, kind="stable")
    end = np.concatenate([t1[lone], walked[:, 1]])
    row = np.concatenate([lone, walked[:, 2]])
    return start[order], end[order], row[order]


def _sweep(t0: Ints, t1: Ints, priority: Sequence[Any], rows: list[int]) -> list[tuple[int, int, int]]:
    """The owners of one overlapping group, from its first start to its last end."""
    cuts = sorted({int(t) for r in rows for t in (t0[r], t1[r])})
    out: list[tuple[int, int, int]] = []
    heap: list[tuple[Any, int]] = []
    nxt = 0
    for a, b in itertools.pairwise(cuts):
        while nxt < len(rows) and t0[rows[nxt]] <= a:
            heapq.heappush(heap, (priority[rows[nxt]], rows[nxt]))
            nxt += 1
        while heap and t1[heap[0][1]] <= a:
            heapq.heappop(heap)
        if not heap:
            continue
        owner = heap[0][1]
        if out and out[-1][2] == owner and out[-1][1] == a:
            out[-1] = (out[-1][0], b, owner)
        else:
            out.append((a, b, owner))
    return out


def bisect(values: Ints, lo: Ints, hi: Ints, target: Ints) -> Ints:
    """For each row the first index in [lo, hi) whose value reaches the target; values ascend within the range."""
    while (open_ := lo < hi).any():
        mid = (lo + hi) >> 1
        less = open_ & (values[np.minimum(mid, len(values) - 1)] < target)
        lo, hi = np.where(less, mid + 1, lo), np.where(open_ & ~less, mid, hi)
    return lo


def expand(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Ranges [first, first + count) as one list, and the row that each item came from."""
    row = np.repeat(np.arange(len(first)), count)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return first[row] + nth, row
