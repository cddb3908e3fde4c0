"""The timeline with its charges, as one cumulative function of time for each cause (`Ledger.at`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from stallbook import fast
from stallbook.charges import SPLIT, Charges, segment_cause
from stallbook.intervals import EXACT, before, expand, mul_div
from stallbook.run import Ints, Run
from stallbook.timeline import DECODE, PAUSE, Timeline

__all__ = ["Ledger"]


class Ledger:
    """Cumulative charge of every cause, the same for all requests: what a gap gets is a difference of two values.

    causes: the columns; `residual` stays 0 here, since it is what no piece covers.
    """

    def __init__(self, run: Run, timeline: Timeline, charges: Charges, causes: Sequence[str]) -> None:
        self.timeline, self.charges, self.causes = timeline, charges, tuple(causes)
        self._step, self._request, self._name = run.segments.step, run.segments.request, run.segments.name
        self._column = np.array([self._column_of(run.names[i]) for i in range(len(run.names))] or [0], np.int64)
        self._segment_column = self._column[run.segments.name]
        self._os_column = self.causes.index("os") if "os" in self.causes else -1
        self._has_os = bool(charges.os.any())
        self._offset = self._decode_offsets()
        narrow = max(timeline.net.max(initial=0), charges.m.max(initial=0)) < EXACT
        self._compiled = bool(narrow) and fast.worth(len(run.emissions.step))

    @cached_property
    def _prefix(self) -> Ints:
        pieces = np.arange(len(self.timeline.t0))
        return _prefix(self._amounts(pieces, self.timeline.t1 - self.timeline.t0))

    @cached_property
    def _covered(self) -> Ints:
        return _prefix((self.timeline.t1 - self.timeline.t0)[None, :])

    def at(self, t: Ints) -> Ints:
        """Charged up to each time of `t` (ns): shape (causes + 1, len(t)); the last row is what is covered at all."""
        if self._compiled:
            return self._walk(t)
        tl = self.timeline
        i = np.searchsorted(tl.t0, t, "right") - 1
        inside = np.zeros(len(t), bool) if not len(tl.t0) else (i >= 0) & (t < tl.t1[i])
        whole = np.where(inside, i, i + 1)
        out = np.concatenate([self._prefix[:, whole], self._covered[:, whole]])
        if inside.any():
            part = t[inside] - tl.t0[i[inside]]
            out[:-1, inside] += self._amounts(i[inside], part)
            out[-1, inside] += part
        return out

    def hidden(self, t: Ints) -> Ints:
        """Host work behind a busy device up to each time, ns. Context: it is charged to nothing."""
        a, b = self.timeline.hidden_t0, self.timeline.hidden_t1
        if not len(a):
            return np.zeros(len(t), np.int64)
        i = np.searchsorted(a, t, "right")
        whole = np.concatenate([[0], np.cumsum(b - a)])
        return np.asarray(whole[i] - np.where(i > 0, np.maximum(b[np.maximum(i - 1, 0)] - t, 0), 0))

    def waited(self, t0: Ints, t1: Ints, request: Ints, name: int) -> Ints:
        """The `os` within each [t0, t1) of the segments of that name that belong to `request`, ns."""
        tl, out = self.timeline, np.zeros(len(t0), np.int64)
        if not self._has_os:
            return out
        first = np.searchsorted(tl.t1, t0, "right")
        piece, span = expand(first, np.maximum(np.searchsorted(tl.t0, t1, "left") - first, 0))
        segment = tl.segment[piece]
        keep = segment != PAUSE
        keep[keep] &= (self._name[segment[keep]] == name) & (self._request[segment[keep]] == request[span[keep]])
        piece, span, segment = piece[keep], span[keep], segment[keep]
        low, high = np.maximum(tl.t0[piece], t0[span]), np.minimum(tl.t1[piece], t1[span])
        done = tl.done[piece] - tl.t0[piece]
        np.add.at(out, span, self._os_upto(segment, done + high) - self._os_upto(segment, done + low))
        return out

    def index(self, cause: str) -> int:
        """The column of a cause."""
        return self.causes.index(cause) if cause in self.causes else -1

    def _walk(self, t: Ints) -> Ints:
        """`at` in compiled code: one pass over the pieces."""
        tl, c, order = self.timeline, self.charges, np.argsort(t, kind="stable")
        named = [self.causes.index(k) if k in self.causes else -1 for k in ("gc", "os", "fwd", *SPLIT)]
        segments = (self._segment_column, c.os, tl.net, self._step)
        offset = np.append(self._offset, 0)[tl.origin]  # the last: of pauses, which have no net
        pieces = (tl.t0, tl.t1, tl.segment, tl.done, offset)
        found = fast.walk(t[order], pieces, segments, (c.m, c.split), np.array([*named, len(self.causes)]))
        out = np.empty_like(found)
        out[:, order] = found
        return out

    def _column_of(self, name: str) -> int:
        cause = segment_cause(name)
        return -1 if cause == DECODE else self.causes.index(cause) if cause in self.causes else 0

    def _os_upto(self, segment: Ints, net: Ints) -> Ints:
        """Run-queue delay in the first `net` ns of a segment's net, floored."""
        if not self._has_os:
            return np.zeros_like(net)
        total, full = self.charges.os[segment], np.maximum(self.timeline.net[segment], 1)
        return np.where(net == full, total, mul_div(total, np.minimum(net, full), full))

    def _decode_offsets(self) -> Ints:
        """For each net piece of a decode segment what its step's decode did before it, less its segment's own part."""
        tl = self.timeline
        offset = np.zeros(len(tl.net_segment), np.int64)
        decode = self.charges.decode
        if np.bincount(self._step[decode > 0], minlength=1).max() <= 1:
            return offset
        rows = np.flatnonzero((tl.net_segment != PAUSE) & (decode[tl.net_segment] > 0))
        segment, start, end = tl.net_segment[rows], tl.net_done[rows], tl.net_done[rows] + tl.net_length[rows]
        own = start - self._os_upto(segment, start)
        rest = end - self._os_upto(segment, end) - own
        step = self._step[segment]
        order = np.lexsort((tl.net_t0[rows], step))
        offset[rows[order]] = before(step[order], rest[order]) - own[order]
        return offset

    def _amounts(self, piece: Ints, length: Ints) -> Ints:
        """What the first `length` ns of each piece are charged to: shape (causes, pieces)."""
        tl = self.timeline
        segment, a = tl.segment[piece], tl.done[piece]
        b = a + length
        out = np.zeros((len(self.causes), len(piece)), np.int64)
        column = np.where(segment == PAUSE, self.causes.index("gc"), self._of_segment(segment))
        waited_a, waited_b = self._os_upto(segment, a), self._os_upto(segment, b)
        if self._has_os:
            live = segment != PAUSE
            waited_a, waited_b = np.where(live, waited_a, 0), np.where(live, waited_b, 0)
            out[self._os_column] = waited_b - waited_a
        simple = np.flatnonzero(column >= 0)
        out[column[simple], simple] += (length - (waited_b - waited_a))[simple]
        rows = np.flatnonzero(column < 0)
        offset = self._offset[tl.origin[piece[rows]]]
        start, end = offset + (a - waited_a)[rows], offset + (b - waited_b)[rows]
        self._add_decode(out, rows, self._step[segment[rows]], start, end)
        return out

    def _of_segment(self, segment: Ints) -> Ints:
        return self._segment_column[np.maximum(segment, 0)] if len(self._segment_column) else np.zeros_like(segment)

    def _add_decode(self, out: Ints, rows: Ints, step: Ints, start: Ints, end: Ints) -> None:
        """Split the stretch [start, end) of each step's M, and add it to `out[:, rows]`."""
        m, split = self.charges.m[step], self.charges.split[:, step]
        part = np.flatnonzero((start > 0) | (end < m))
        amounts = split.copy()
        if len(part):
            upto_a, upto_b = _upto(m[part], split[:, part], start[part]), _upto(m[part], split[:, part], end[part])
            amounts[:, part] = upto_b - upto_a
        out[self.causes.index("fwd"), rows] += end - start - amounts.sum(axis=0)
        for cause, amount in zip(SPLIT, amounts, strict=True):
            if cause in self.causes:
                out[self.causes.index(cause), rows] += amount


def _upto(m: Ints, split: Ints, done: Ints) -> Ints:
    """Each label's share of the first `done` ns of M: a chain of floors, each of what the earlier ones left.

    Every link grows by at most what `done` grows by, so no stretch gets a negative share of anything.
    """
    rest, total = done.copy(), m.copy()
    out = np.zeros_like(split)
    for k in range(len(split)):
        out[k] = mul_div(split[k], np.minimum(rest, total), np.maximum(total, 1))
        rest, total = rest - out[k], total - split[k]
    return out


def _prefix(amounts: Ints) -> Ints:
    out = np.zeros((amounts.shape[0], amounts.shape[1] + 1), np.int64)
    np.cumsum(amounts, axis=1, out=out[:, 1:])
    return out
