"""The post's rules gap by gap in plain Python and float milliseconds: what the fast partition is measured against.

Written from the rules: bisection over steps, overlap per segment, an index of pauses. It takes the arrays of
the post's `.npz` logs (times in seconds). `arrays_of` makes the same arrays from a `Run`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np

CAUSES = ("prefill", "preempt", "graph", "gc", "tok")
LABELS = (*CAUSES, "kernel", "residual")
TOK, SWAP, PREFILL, DECODE = range(4)
LABEL_OF = {TOK: "tok", SWAP: "preempt", PREFILL: "prefill"}
NOT_DECODED, EAGER = -1, 0

Rows = Any
"""A two-dimensional array, or a list of rows."""


class Pauses:
    """Disjoint pauses in order; how much of a window they cover."""

    def __init__(self, rows: Rows) -> None:
        pairs = sorted((float(row[0]), float(row[1])) for row in rows)
        self.starts = [a for a, _ in pairs]
        self.ends = [b for _, b in pairs]

    def within(self, x: float, y: float) -> float:
        total = 0.0
        for i in range(bisect_left(self.ends, x), len(self.starts)):
            if self.starts[i] >= y:
                break
            total += max(0.0, min(self.ends[i], y) - max(self.starts[i], x))
        return total


class PlainPost:
    """The partition of one log. `baseline`: (slope, intercept) in ms of padded size; fitted where None."""

    def __init__(self, steps: Rows, segments: Rows, pauses: Rows, baseline: tuple[float, float] | None = None) -> None:
        self.t0 = [float(row[0]) for row in steps]
        self.t1 = [float(row[1]) for row in steps]
        self.rows = [int(row[2]) for row in steps]
        self.graph = [int(row[4]) for row in steps]
        self.segments: list[list[tuple[int, float, float]]] = [[] for _ in self.t0]
        for step, name, a, b in segments:
            self.segments[int(step)].append((int(name), float(a), float(b)))
        self.pauses = Pauses(pauses)
        self.eager_share: dict[int, float] = {}
        self.slope, self.intercept = baseline if baseline is not None else self.fit()

    def fit(self) -> tuple[float, float]:
        points = [(size, self.decode_ms(i)) for i, size in enumerate(self.graph) if size > 0]
        slope, intercept = np.polyfit([x for x, _ in points], [y for _, y in points], 1)
        return float(slope), float(intercept)

    def decode_ms(self, i: int) -> float:
        mine = [(a, b) for name, a, b in self.segments[i] if name == DECODE]
        return sum(b - a - self.pauses.within(a, b) for a, b in mine) * 1e3

    def graph_share(self, i: int) -> float:
        """Which share of a step's decode time is above what a captured step of its rows costs."""
        if self.graph[i] != EAGER:
            return 0.0
        if i not in self.eager_share:
            whole = self.decode_ms(i)
            cost = self.slope * self.rows[i] + self.intercept
            self.eager_share[i] = max(0.0, whole - cost) / whole if whole > 0 else 0.0
        return self.eager_share[i]

    def charge(self, x: float, y: float, into: dict[str, float]) -> None:
        """Charge [x, y) by what the engine did in it."""
        paused = self.pauses.within(x, y)
        into["gc"] += paused * 1e3
        left = y - x - paused
        i = max(0, bisect_right(self.t0, x) - 1)
        while i < len(self.t0) and self.t0[i] < y:
            if self.t1[i] > x:
                for name, a, b in self.segments[i]:
                    a, b = max(a, x), min(b, y)
                    if a >= b:
                        continue
                    net = b - a - self.pauses.within(a, b)
                    left -= net
                    if name == DECODE:
                        share = self.graph_share(i)
                        into["graph"] += net * share * 1e3
                        into["kernel"] += net * (1 - share) * 1e3
                    else:
                        into[LABEL_OF[name]] += net * 1e3
            i += 1
        into["residual"] += left * 1e3

    def gap(
        self, t0: float, t1: float, evictions: list[tuple[float, float]]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Parts and context of one gap, in ms."""
        parts, context = dict.fromkeys(LABELS, 0.0), dict.fromkeys(LABELS, 0.0)
        now = t0
        for a, b in evictions:
            a, b = max(a, now), min(b, t1)
            if a >= b:
                continue
            if a > now:
                self.charge(now, a, parts)
            parts["preempt"] += (b - a) * 1e3
            self.charge(a, b, context)
            now = b
        if now < t1:
            self.charge(now, t1, parts)
        return parts, context


def primary_of(gap_ms: float, parts: dict[str, float]) -> str:
    """The largest cause, if it is at least a millisecond and a quarter of the gap."""
    best = max(CAUSES, key=lambda cause: parts[cause])
    return best if parts[best] >= 1.0 and parts[best] >= 0.25 * gap_ms else "clean"


def plain_gaps(
    steps: Rows,
    segments: Rows,
    pauses: Rows,
    emissions: Rows,
    evictions: Rows,
    baseline: tuple[float, float] | None = None,
    partition: PlainPost | None = None,
) -> list[dict[str, Any]]:
    """Every gap: request, step, t0, t1 (seconds), gap_ms, parts, context, primary. In the order of `emissions`."""
    partition = partition or PlainPost(steps, segments, pauses, baseline)
    away: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for request, a, b in evictions:
        away[int(request)].append((float(a), float("inf") if np.isnan(b) else float(b)))
    for windows in away.values():
        windows.sort()
    tokens: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for request, t, step in emissions:
        tokens[int(request)].append((float(t), int(step)))
    out = []
    for request, mine in tokens.items():
        for (t0, _), (t1, step) in pairwise(mine):
            parts, context = partition.gap(t0, t1, away.get(request, []))
            gap_ms = (t1 - t0) * 1e3
            row = {"request": request, "step": step, "t0": t0, "t1": t1, "gap_ms": gap_ms, "parts": parts}
            out.append(row | {"context": context, "primary": primary_of(gap_ms, parts)})
    return out


def arrays_of(run: Any) -> dict[str, Any]:
    """A `Run` that knows only what the post knows, as the arrays that `plain_gaps` takes."""
    ns = 1e-9
    st, seg, ev, em = run.steps, run.segments, run.evictions, run.emissions
    code = np.where(
        st.graph == 2, EAGER, np.where(st.graph == 1, np.where(st.padded < 0, st.decode_tokens, st.padded), -1)
    )
    names = np.array(
        [{"tok": TOK, "swap": SWAP, "prefill": PREFILL, "decode": DECODE}.get(n, -1) for n in run.names] or [-1]
    )
    known = (names[seg.name] >= 0) & (seg.device == 0)
    ends = np.where(ev.t1 >= 2**62, np.nan, ev.t1 * ns)
    return {
        "steps": np.column_stack([st.t0 * ns, st.t1 * ns, st.decode_tokens, st.prefill_tokens, code]).tolist(),
        "segments": np.column_stack([seg.step, names[seg.name], seg.t0 * ns, seg.t1 * ns])[known].tolist(),
        "pauses": np.column_stack([run.pauses.t0 * ns, run.pauses.t1 * ns, run.pauses.generation]).tolist(),
        "emissions": np.column_stack([em.request, st.emit[em.step] * ns, em.step]).tolist(),
        "evictions": np.column_stack([ev.request, ev.t0 * ns, ends]).tolist(),
    }
