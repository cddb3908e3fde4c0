"""The post's rules one gap at a time, in plain Python and float milliseconds: what the fast partition is timed against.

The engine's work is one list of windows in order of time; a gap walks those that it meets. It takes the arrays
of the post's `.npz` logs (times in seconds). `arrays_of` makes the same arrays from a `Run`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np

LABELS = ("prefill", "preempt", "graph", "gc", "tok", "kernel", "residual")
PREFILL, PREEMPT, GRAPH, GC, TOK, KERNEL, RESIDUAL = range(7)
OF_SEGMENT = (TOK, PREEMPT, PREFILL, KERNEL)
"""The label of each segment code of a log; `KERNEL` windows are shared with `GRAPH`."""
SEGMENT_CODE = {"tok": 0, "swap": 1, "prefill": 2, "decode": 3}
PRIMARY = (PREFILL, PREEMPT, GRAPH, GC, TOK)

Rows = Any
"""A two-dimensional array, or a list of rows."""


class PlainPost:
    """The partition of one log. `baseline`: (slope, intercept) in ms of padded size; fitted where None."""

    def __init__(self, steps: Rows, segments: Rows, pauses: Rows, baseline: tuple[float, float] | None = None) -> None:
        self.stops = sorted((float(p[0]), float(p[1])) for p in pauses)
        self.stop_ends = [end for _, end in self.stops]
        windows = sorted((float(a), float(b), OF_SEGMENT[int(code)], int(step)) for step, code, a, b in segments)
        self.windows = windows
        self.window_ends = [w[1] for w in windows]
        decode_ms = [0.0] * len(steps)
        for start, end, label, step in windows:
            if label == KERNEL:
                decode_ms[step] += (end - start - self.stopped(start, end)) * 1e3
        if baseline is None:
            sizes = [(int(s[4]), ms) for s, ms in zip(steps, decode_ms, strict=True) if int(s[4]) > 0]
            slope, fixed = np.polyfit(*zip(*sizes, strict=True), 1)
            baseline = float(slope), float(fixed)
        self.excess = [0.0] * len(steps)
        for k, step in enumerate(steps):
            if int(step[4]) == 0 and decode_ms[k] > 0:  # above the largest captured size
                usual = baseline[0] * int(step[2]) + baseline[1]
                self.excess[k] = max(decode_ms[k] - usual, 0.0) / decode_ms[k]

    def stopped(self, x: float, y: float) -> float:
        """How long the process was stopped in [x, y), in seconds."""
        total = 0.0
        for start, end in self.stops[bisect_right(self.stop_ends, x) :]:
            if start >= y:
                break
            total += min(end, y) - max(start, x)
        return total

    def walk(self, x: float, y: float, row: list[float]) -> None:
        """Add what the engine did in [x, y) to a row of labels, in seconds."""
        gc = self.stopped(x, y)
        row[GC] += gc
        unclaimed = y - x - gc
        for k in range(bisect_right(self.window_ends, x), len(self.windows)):
            start, end, label, step = self.windows[k]
            if start >= y:
                break
            start, end = max(start, x), min(end, y)
            worked = end - start - self.stopped(start, end)
            unclaimed -= worked
            if label == KERNEL:
                row[GRAPH] += worked * self.excess[step]
                row[KERNEL] += worked * (1.0 - self.excess[step])
            else:
                row[label] += worked
        row[RESIDUAL] += unclaimed

    def gap(
        self, t0: float, t1: float, evictions: list[tuple[float, float]]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Parts and context of one gap, in ms. Evictions are sorted."""
        own, meanwhile = [0.0] * 7, [0.0] * 7
        at = t0
        for out, back in evictions:
            out, back = max(out, at), min(back, t1)
            if out < back:
                self.walk(at, out, own)
                self.walk(out, back, meanwhile)
                own[PREEMPT] += back - out
                at = back
        self.walk(at, t1, own)
        return (
            {label: s * 1e3 for label, s in zip(LABELS, own, strict=True)},
            {label: s * 1e3 for label, s in zip(LABELS, meanwhile, strict=True)},
        )


def primary_of(gap_ms: float, parts: dict[str, float]) -> str:
    """The largest cause, if it is at least a millisecond and a quarter of the gap."""
    ms, cause = max((parts[LABELS[k]], -k) for k in PRIMARY)
    return LABELS[-cause] if ms >= 1.0 and ms * 4 >= gap_ms else "clean"


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
    code = np.where(st.graph == 2, 0, np.where(st.graph == 1, np.where(st.padded < 0, st.decode_tokens, st.padded), -1))
    names = np.array([SEGMENT_CODE.get(n, -1) for n in run.names] or [-1])
    known = (names[seg.name] >= 0) & (seg.device == 0)
    ends = np.where(ev.t1 >= 2**62, np.nan, ev.t1 * ns)
    return {
        "steps": np.column_stack([st.t0 * ns, st.t1 * ns, st.decode_tokens, st.prefill_tokens, code]).tolist(),
        "segments": np.column_stack([seg.step, names[seg.name], seg.t0 * ns, seg.t1 * ns])[known].tolist(),
        "pauses": np.column_stack([run.pauses.t0 * ns, run.pauses.t1 * ns, run.pauses.generation]).tolist(),
        "emissions": np.column_stack([em.request, st.emit[em.step] * ns, em.step]).tolist(),
        "evictions": np.column_stack([ev.request, ev.t0 * ns, ends]).tolist(),
    }
