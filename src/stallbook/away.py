"""When a request could not have had a token: it was evicted, or held. They are charged before any step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallbook.causes import OTHER
from stallbook.gaps import Rhythm
from stallbook.intervals import bisect, expand, resolve
from stallbook.run import Ints, Run

__all__ = ["Windows", "away_windows", "touched_gaps"]


@dataclass(frozen=True)
class Windows:
    """A row a window in which a request is evicted or held: disjoint within a request, ordered by (request, t0).

    cause: column of `Ledger.causes`. joined: 1 where it follows the one before it without an instant between, since
    it was cut out of a longer eviction or hold.
    """

    request: Ints
    t0: Ints
    t1: Ints
    cause: Ints
    joined: Ints


def away_windows(run: Run, rules: str, causes: Sequence[str]) -> Windows:
    """Evicted before held; of two holds at once the one that started first, then by name. `post` knows no holds."""
    e, h = run.evictions, run.holds
    preempt = causes.index("preempt")
    if rules == "post" or not len(h.request):
        return Windows(e.request, e.t0, e.t1, np.full(len(e.t0), preempt), np.zeros(len(e.t0), np.int64))
    spans: dict[int, list[tuple[int, int, int, tuple[int, int, str]]]] = defaultdict(list)
    for r, a, b in zip(e.request.tolist(), e.t0.tolist(), e.t1.tolist(), strict=True):
        spans[r].append((a, b, preempt, (0, a, "")))
    for r, a, b, k in zip(h.request.tolist(), h.t0.tolist(), h.t1.tolist(), h.kind.tolist(), strict=True):
        cause = OTHER + run.names[k]
        spans[r].append((a, b, causes.index(cause), (1, a, cause)))
    rows: list[tuple[int, int, int, int, int]] = []
    for r in sorted(spans):
        windows = sorted(w for w in spans[r] if w[1] > w[0])
        t0, t1 = np.array([w[0] for w in windows], np.int64), np.array([w[1] for w in windows], np.int64)
        start, end, owner = resolve(t0, t1, [w[3] for w in windows])
        earlier = np.searchsorted(t0, start, "left")
        joined = (earlier > 0) & (np.append(0, np.maximum.accumulate(t1))[earlier] > start)
        pieces = zip(start.tolist(), end.tolist(), owner.tolist(), joined.tolist(), strict=True)
        rows += [(r, a, b, windows[o][2], int(j)) for a, b, o, j in pieces]
    return Windows(*np.array(rows, np.int64).reshape(-1, 5).T)


def touched_gaps(run: Run, rhythm: Rhythm, windows: Windows) -> Ints:
    """Gaps that overlap a window of their request, by the row in `Run.emissions` that ends them."""
    e, emit = run.emissions, rhythm.emit
    lo = np.searchsorted(e.request, windows.request, "left")
    hi = np.searchsorted(e.request, windows.request, "right")
    step = np.append(rhythm.step, len(run.steps.id))
    after = step[np.searchsorted(emit, windows.t0, "right")]  # the first step that emits past the window's start
    until = step[np.searchsorted(emit, windows.t1, "left")]  # the first that does not emit before its end
    first = bisect(e.step, lo + 1, np.maximum(hi, lo + 1), after)
    count = np.maximum(bisect(e.step, lo, np.maximum(hi - 1, lo), until) + 1 - first, 0)
    return np.unique(expand(first, count)[0])
