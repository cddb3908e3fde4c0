"""The same arithmetic in Numba, for recordings of millions of gaps (the `fast` extra).

Each function here has a NumPy counterpart that gives the same integers; the tests hold them together. The first
call compiles (seconds, cached on disk), so short recordings never come here: `worth` decides.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def"

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from stallbook.run import Ints

__all__ = ["cut_host", "scan", "spread", "walk", "worth"]

WORTH: Final = 4_000_000
"""Gaps from which compiled code wins over NumPy even when it must be loaded first (measured)."""


def worth(gaps: int) -> bool:
    """Whether to use compiled code for so many gaps. STALLBOOK_KERNELS=numba or =numpy decides it for all sizes."""
    choice = os.environ.get("STALLBOOK_KERNELS", "auto")
    if choice == "numpy" or not _installed():
        return False
    return choice == "numba" or gaps >= WORTH


@cache
def _installed() -> bool:
    return importlib.util.find_spec("numba") is not None


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    return compiled


def scan(request: Ints, step: Ints, ordinal: Ints, steps: int) -> tuple[Ints, Ints]:
    """See `gaps.find_rhythm`: weight of each emitting step's interval, and the gaps that skip one."""
    return _compiled(_scan)(request, step, ordinal, steps)  # type: ignore[no-any-return]


def _scan(request, step, ordinal, steps):
    weight = np.zeros(steps, np.int64)
    skipping = np.zeros(1024, np.int64)
    found = 0
    last_request, last = -1, -1
    for i in range(len(request)):
        to = ordinal[step[i]]
        if request[i] == last_request:
            if to - last == 1:
                weight[to] += 1
            else:
                if found == len(skipping):
                    longer = np.zeros(2 * found, np.int64)
                    longer[:found] = skipping
                    skipping = longer
                skipping[found] = i
                found += 1
        last_request, last = request[i], to
    return weight, skipping[:found].copy()


def cut_host(
    t0: Ints, t1: Ints, live: Ints, pause0: Ints, pause1: Ints
) -> tuple[bool, Ints, Ints, Ints, Ints, Ints, Ints]:
    """See `timeline.build_timeline`, where no segments overlap and there is no device lane.

    Returns whether that holds, then the pieces (start, end, segment or -1 for a pause, net before the piece),
    the net of each segment and the pause time in it.
    """
    return _compiled(_cut_host)(t0, t1, live, pause0, pause1)  # type: ignore[no-any-return]


def _cut_host(t0, t1, live, pause0, pause1):
    n, most = len(t0), len(t0) + 2 * len(pause0)
    a, b = np.empty(most, np.int64), np.empty(most, np.int64)
    segment, done = np.empty(most, np.int64), np.zeros(most, np.int64)
    net, paused = np.zeros(n, np.int64), np.zeros(n, np.int64)
    count, j, reach, stopped = 0, 0, -(2**62), -(2**62)  # reach: last segment's end; stopped: last pause's end
    for i in range(n):
        if not live[i] or t1[i] <= t0[i]:
            continue
        if t0[i] < reach:
            return False, a, b, segment, done, net, paused
        start, end = max(t0[i], stopped), t1[i]
        reach = end
        while j < len(pause0) and pause0[j] < end:
            if pause0[j] > start:
                a[count], b[count], segment[count], done[count] = start, pause0[j], i, net[i]
                net[i] += pause0[j] - start
                count += 1
            a[count], b[count], segment[count] = pause0[j], pause1[j], -1
            count += 1
            stopped = pause1[j]
            start = max(start, stopped)
            j += 1
        if start < end:
            a[count], b[count], segment[count], done[count] = start, end, i, net[i]
            net[i] += end - start
            count += 1
        paused[i] = end - t0[i] - net[i]
    for k in range(j, len(pause0)):
        a[count], b[count], segment[count] = pause0[k], pause1[k], -1
        count += 1
    return True, a[:count], b[:count], segment[:count], done[:count], net, paused


def walk(t: Ints, pieces: tuple[Ints, ...], segments: tuple[Ints, ...], steps: tuple[Ints, ...], columns: Ints) -> Ints:
    """See `ledger.Ledger.at`, for sorted times `t`.

    pieces: t0, t1, segment, done, decode offset. segments: column (-1: decode), os, net, step. steps: M, split.
    columns: of gc, os, fwd, then of each label of the split (-1: none), then the number of causes.
    """
    return _compiled(_walk)(t, *pieces, *segments, *steps, columns)  # type: ignore[no-any-return]


def _walk(t, t0, t1, segment, done, offset, column, os, net, step, m, split, columns):
    def floor(a, b, c):  # as intervals.mul_div
        if b == 0 or b >= c:
            return 0 if b == 0 else a
        guess = np.int64(a * (b / c))
        return guess + (a * b - guess * c) // c

    causes, labels = columns[-1], split.shape[0]
    out = np.zeros((causes + 1, len(t)), np.int64)
    upto = np.zeros(causes + 1, np.int64)
    piece = np.zeros(causes + 1, np.int64)
    i, whole = 0, False
    for k in range(len(t)):
        while i < len(t0):
            length = min(t1[i], t[k]) - t0[i]
            if length <= 0:
                break
            whole = t1[i] <= t[k]
            piece[:] = 0
            piece[causes] = length
            s = segment[i]
            if s < 0:
                piece[columns[0]] = length
            else:
                before, after = done[i], done[i] + length
                if os[s] > 0:
                    before -= floor(os[s], done[i], net[s])
                    after -= floor(os[s], done[i] + length, net[s])
                    piece[columns[1]] = length - (after - before)
                if column[s] >= 0:
                    piece[column[s]] += after - before
                else:
                    g = step[s]
                    rest0, rest1, total = offset[i] + before, offset[i] + after, m[g]
                    for c in range(labels):
                        if split[c, g] > 0:
                            x, y = floor(split[c, g], rest0, total), floor(split[c, g], rest1, total)
                            piece[columns[3 + c]] += y - x
                            rest0, rest1 = rest0 - x, rest1 - y
                            total -= split[c, g]
                    piece[columns[2]] += rest1 - rest0
            if not whole:
                break
            upto += piece
            i += 1
            piece[:] = 0
        out[:, k] = upto
        if i < len(t0) and t0[i] < t[k]:
            out[:, k] += piece
    return out


def spread(request: Ints, step: Ints, ordinal: Ints, own: Ints, rows: Ints, first_own: int, out: Ints) -> Ints:
    """See `Partition.parts`: the row of each gap, written out gap by gap."""
    return _compiled(_spread)(request, step, ordinal, own, rows, first_own, out)  # type: ignore[no-any-return]


def _spread(request, step, ordinal, own, rows, first_own, out):
    gap, j = 0, 0
    for i in range(1, len(request)):
        if request[i] != request[i - 1]:
            continue
        row = ordinal[step[i]]
        if j < len(own) and own[j] == i:
            row = first_own + j
            j += 1
        for k in range(rows.shape[1]):
            out[gap, k] = rows[row, k]
        gap += 1
    return out
