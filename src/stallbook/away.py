"""When a request could not have had a token: evicted, held, or left out of a batch (rules 1 to 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallbook.causes import OTHER
from stallbook.gaps import Rhythm
from stallbook.intervals import resolve, subtract, union
from stallbook.run import Ints, Run

__all__ = ["Away", "Skipped", "Windows", "away_windows", "cut_gaps", "skipped_steps"]


@dataclass(frozen=True)
class Windows:
    """A row a window in which a request is evicted or held: disjoint within a request, ordered by (request, t0).

    cause: column of `Ledger.causes`.
    """

    request: Ints
    t0: Ints
    t1: Ints
    cause: Ints


@dataclass(frozen=True)
class Away:
    """A row a pair of a gap and a window that overlap: the part [t0, t1) of the gap goes to `cause`.

    gap: the row in `Run.emissions` that ends the gap. first, last: the emitting steps whose interval the window
    touches, counted as in `Rhythm`.
    """

    gap: Ints
    t0: Ints
    t1: Ints
    cause: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True)
class Skipped:
    """Emitting steps strictly inside a gap. gap, step: pairs that left the request out (`unscheduled`).

    unexplained: skipped steps that no eviction, hold or `unscheduled` explains; gaps: how many gaps have any.
    """

    gap: Ints
    step: Ints
    unexplained: int
    gaps: int


def away_windows(run: Run, rules: str, causes: Sequence[str]) -> Windows:
    """Evicted before held; of two holds at once the one that started first, then by name. `post` knows no holds."""
    e, h = run.evictions, run.holds
    preempt = causes.index("preempt")
    if rules == "post" or not len(h.request):
        return Windows(e.request, e.t0, e.t1, np.full(len(e.t0), preempt))
    spans: dict[int, list[tuple[int, int, int, tuple[int, int, str]]]] = defaultdict(list)
    for r, a, b in zip(e.request.tolist(), e.t0.tolist(), e.t1.tolist(), strict=True):
        spans[r].append((a, b, preempt, (0, a, "")))
    for r, a, b, k in zip(h.request.tolist(), h.t0.tolist(), h.t1.tolist(), h.kind.tolist(), strict=True):
        cause = OTHER + run.names[k]
        spans[r].append((a, b, causes.index(cause), (1, a, cause)))
    rows: list[tuple[int, int, int, int]] = []
    for r in sorted(spans):
        windows = sorted(w for w in spans[r] if w[1] > w[0])
        t0, t1 = np.array([w[0] for w in windows], np.int64), np.array([w[1] for w in windows], np.int64)
        start, end, owner = resolve(t0, t1, [w[3] for w in windows])
        rows += [(r, a, b, windows[o][2]) for a, b, o in zip(start.tolist(), end.tolist(), owner.tolist(), strict=True)]
    return Windows(*np.array(rows, np.int64).reshape(-1, 4).T)


def cut_gaps(run: Run, rhythm: Rhythm, windows: Windows) -> Away:
    """Every overlap of a gap with a window of its request."""
    e, emit = run.emissions, rhythm.emit
    lo = np.searchsorted(e.request, windows.request, "left")
    hi = np.searchsorted(e.request, windows.request, "right")
    after = np.searchsorted(emit, windows.t0, "right")  # the first emission past the window's start
    until = np.searchsorted(emit, windows.t1, "left")  # emissions before the window's end
    step = np.append(rhythm.step, len(run.steps.id))
    first = _bisect(e.step, lo + 1, np.maximum(hi, lo + 1), step[after])
    count = np.maximum(_bisect(e.step, lo, np.maximum(hi - 1, lo), step[until]) + 1 - first, 0)
    gap, window = _expand(first, count)
    t0 = np.maximum(windows.t0[window], emit[rhythm.ordinal[e.step[gap - 1]]])
    t1 = np.minimum(windows.t1[window], emit[rhythm.ordinal[e.step[gap]]])
    return Away(gap, t0, t1, windows.cause[window], after[window], until[window])


def skipped_steps(run: Run, rhythm: Rhythm, away: Away, rules: str) -> Skipped:
    """Which emitting steps a gap skipped, and which of them left a live request out of their batch."""
    gap = rhythm.skipping
    if not len(gap):
        return Skipped(gap, gap, 0, 0)
    stride = len(rhythm.emit) + 2  # one long axis: gap g's steps lie at g * stride
    at = rhythm.ordinal
    frm, to = at[run.emissions.step[gap - 1]], at[run.emissions.step[gap]]
    away_frm, away_to = at[run.emissions.step[away.gap - 1]], at[run.emissions.step[away.gap]]
    touched = union(
        away.gap * stride + np.maximum(away.first, away_frm + 1),
        away.gap * stride + np.minimum(away.last + 1, away_to),
    )
    a, b, row = subtract(gap * stride + frm + 1, gap * stride + to, *touched)
    if rules == "post" or not run.members.known.any():
        return Skipped(a[:0], a[:0], int((b - a).sum()), len(np.unique(row)))
    ordinal, piece = _expand(a - gap[row] * stride, b - a)
    gap = gap[row][piece]
    out = _left_out(run, run.emissions.request[gap], rhythm.step[ordinal])
    return Skipped(gap[out], ordinal[out], int((~out).sum()), len(np.unique(gap[~out])))


def _left_out(run: Run, request: Ints, step: Ints) -> npt.NDArray[np.bool_]:
    """Whether each step decoded others with a recorded batch that lacks the request."""
    judged = (run.members.known[step] > 0) & (run.steps.decode_tokens[step] > 0)
    n = len(run.requests.names)
    member_step = np.repeat(np.arange(len(run.steps.id)), np.diff(run.members.start))
    keys = member_step * n + run.members.request
    wanted = step * n + request
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    present = keys[at] == wanted if len(keys) else np.zeros(len(wanted), bool)
    return np.asarray(judged & ~present)


def _bisect(values: Ints, lo: Ints, hi: Ints, target: Ints) -> Ints:
    """For each row the first index in [lo, hi) whose value reaches the target; values ascend within the range."""
    while (open_ := lo < hi).any():
        mid = (lo + hi) >> 1
        less = open_ & (values[np.minimum(mid, len(values) - 1)] < target)
        lo, hi = np.where(less, mid + 1, lo), np.where(open_ & ~less, mid, hi)
    return lo


def _expand(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Ranges [first, first + count) as one list, and the row that each item came from."""
    row = np.repeat(np.arange(len(first)), count)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return first[row] + nth, row
