"""Sorting and merging of columns, at the speed of NumPy on tens of millions of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallbook.run import Ints

__all__ = ["Columns", "Mask", "first", "group_starts", "merge", "order", "sort", "stable_order", "take"]

Columns = dict[str, Ints]
Mask = npt.NDArray[np.bool_]


def first(mask: Mask, origin: Ints) -> int:
    """Of the rows in `mask`, the index of the one that stands first in the file."""
    rows = np.flatnonzero(mask)
    return int(rows[np.argmin(origin[rows])])


def _is_sorted(keys: tuple[Ints, ...]) -> bool:
    tied = np.ones(max(len(keys[0]) - 1, 0), dtype=np.bool_)
    for key in keys:
        before, after = key[:-1], key[1:]
        if np.any(tied & (before > after)):
            return False
        tied &= before == after
        if not tied.any():
            return True
    return True


def order(*keys: Ints) -> Ints | None:
    """The stable order of rows by `keys`, the most significant first; None if they are in order already."""
    if _is_sorted(keys):
        return None
    return np.lexsort(keys[::-1])


def stable_order(key: Ints, size: int) -> Ints:
    """The stable order of a key within `range(size)`: by radix, 16 bits at a time, since most rows are far apart."""
    digits = [(key & 0xFFFF).astype(np.uint16)]
    while size > 1 << (16 * len(digits)):
        digits.append((key >> (16 * len(digits)) & 0xFFFF).astype(np.uint16))
    return np.lexsort(digits) if len(digits) > 1 else np.argsort(digits[0], kind="stable")


def take(columns: Columns, rows: Ints | Mask | None) -> Columns:
    """The rows of every column, by index or mask; None takes all as they are."""
    return columns if rows is None else {name: column[rows] for name, column in columns.items()}


def sort(columns: Columns, *keys: str) -> Columns:
    """The columns, ordered by the named ones."""
    return take(columns, order(*(columns[key] for key in keys)))


def group_starts(*keys: Ints) -> Ints:
    """Where a new combination of `keys` begins, in rows that are ordered by them."""
    if not len(keys[0]):
        return np.empty(0, dtype=np.int64)
    new = np.ones(len(keys[0]), dtype=np.bool_)
    new[1:] = False
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(new)


def merge(group: Ints, t0: Ints, t1: Ints) -> Ints | None:
    """Where a merged window begins, in windows ordered by (group, t0); None if none of a group overlap.

    Windows that touch do not overlap. The end of a merged window is the greatest of its parts.
    """
    same = group[1:] == group[:-1]
    if not np.any(same & (t0[1:] < t1[:-1])):
        return None
    # The running maximum of t1 in each group: of ranks, raised by the group's number, so that no group reaches another.
    ends, rank = np.unique(t1, return_inverse=True)
    number = np.concatenate(([0], np.cumsum(~same)))
    reached = np.maximum.accumulate(rank + number * len(ends)) - number * len(ends)
    new = np.ones(len(t0), dtype=np.bool_)
    new[1:] = ~same | (t0[1:] >= ends[reached[:-1] * same])
    return np.flatnonzero(new)
