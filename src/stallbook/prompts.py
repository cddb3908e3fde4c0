"""Whose prompts the `prefill` of a gap computed, and whether for the first time. Context: it adds nothing.

A prompt is computed again when its request had its cache dropped (an eviction by recompute) or has emitted already.
Prompts in the same forward pass as a decode have no owner on record. A request that was never away between two tokens
computed no prompt of its own there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallbook.intervals import bisect, expand, subtract, union
from stallbook.partition import Partition
from stallbook.run import NEVER, Ints, Run
from stallbook.spans import Spans, charge_spans

__all__ = ["KINDS", "prompts"]

KINDS = ("another's", "its own", "another's, again", "its own, again", "not recorded whose")
"""The owner of a prompt as seen from the request whose gap it is in; the columns of `prompts`."""


@dataclass(frozen=True)
class _Chunks:
    """A row a stretch [t0, t1) of the timeline, ns, in which the prompt of `owner` was computed; sorted, disjoint.

    again: 1 where it had been computed before.
    """

    t0: Ints
    t1: Ints
    owner: Ints
    again: Ints


def prompts(p: Partition) -> Ints:
    """The `prefill` of each row of `p` by whose prompt it was: ns, shape (rows, KINDS); they add up to it."""
    total = p.rows[:, p.causes.index("prefill")]
    out = np.zeros((len(total), len(KINDS)), np.int64)
    chunks, emit = _chunks(p), p.rhythm.emit
    if len(chunks.t0):
        out[: len(emit), [0, 2]] = np.diff(_upto(p, chunks, emit), axis=1, prepend=0).T
        out[0] = 0  # reaches back without end, and no gap is it
        rows = np.flatnonzero(total[len(emit) :])
        every, mine = _of_own(p, chunks, rows)
        out[len(emit) + rows[:, None], [0, 2]] = (every - mine).T
        out[len(emit) + rows[:, None], [1, 3]] = mine.T
    out[:, 4] = total - out.sum(axis=1)
    return out


def _chunks(p: Partition) -> _Chunks:
    run, tl = p.run, p.ledger.timeline
    s = run.segments
    code = run.names.index("prefill") if "prefill" in run.names else -1
    piece = np.flatnonzero(tl.segment >= 0)
    segment = tl.segment[piece]
    known = (s.name[segment] == code) & (s.request[segment] >= 0)
    piece, segment = piece[known], segment[known]
    owner = s.request[segment]
    return _Chunks(tl.t0[piece], tl.t1[piece], owner, (_computed(run)[owner] <= s.t0[segment]).astype(np.int64))


def _computed(run: Run) -> Ints:
    """From when on a prompt of each request is computed again."""
    out = np.full(len(run.requests.names), NEVER)
    e, v = run.emissions, run.evictions
    np.minimum.at(out, e.request, run.steps.emit[e.step])
    dropped = v.recompute == 1
    np.minimum.at(out, v.request[dropped], v.t0[dropped])
    return out


def _amount(p: Partition, t0: Ints, t1: Ints) -> Ints:
    """The prefill charged in stretches of the timeline."""
    ends = p.ledger.at(np.concatenate([t0, t1]))[p.ledger.index("prefill")]
    return np.asarray(ends[len(t0) :] - ends[: len(t0)])


def _upto(p: Partition, c: _Chunks, t: Ints) -> Ints:
    """Prefill up to each time, for the first time and again: ns, shape (2, times)."""
    prefix = np.zeros((2, len(c.t0) + 1), np.int64)
    prefix[c.again, 1 + np.arange(len(c.t0))] = _amount(p, c.t0, c.t1)
    prefix = prefix.cumsum(axis=1)
    chunk = np.searchsorted(c.t0, t, "right") - 1
    inside = (chunk >= 0) & (t < c.t1[chunk])
    out = prefix[:, np.where(inside, chunk, chunk + 1)]
    at = np.flatnonzero(inside)
    out[c.again[chunk[at]], at] += _amount(p, c.t0[chunk[at]], t[at])
    return out


def _of_own(p: Partition, c: _Chunks, rows: Ints) -> tuple[Ints, Ints]:
    """All prefill in gaps with a row of their own, and the request's own: ns, shape (2, gaps), as `_upto`."""
    gap, request, t0, t1 = _stretches(p, rows)
    every, mine = np.zeros((2, len(rows)), np.int64), np.zeros((2, len(rows)), np.int64)
    for k, ns in enumerate(_upto(p, c, t1) - _upto(p, c, t0)):
        np.add.at(every[k], gap, ns)
    order = np.argsort(c.owner, kind="stable")
    of = _Chunks(c.t0[order], c.t1[order], c.owner[order], c.again[order])
    hi = np.searchsorted(of.owner, request, "right")
    first = bisect(of.t1, np.searchsorted(of.owner, request, "left"), hi, t0 + 1)
    chunk, stretch = expand(first, np.maximum(bisect(of.t0, first, hi, t1) - first, 0))
    ns = _amount(p, np.maximum(of.t0[chunk], t0[stretch]), np.minimum(of.t1[chunk], t1[stretch]))
    np.add.at(mine, (of.again[chunk], gap[stretch]), ns)
    return every, mine


def _stretches(p: Partition, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Where the rules for every request alike hold in gaps with a row of their own: (gap, request, start, end)."""
    e, rhythm = p.run.emissions, p.rhythm
    end = p.own[rows]
    frm, to = rhythm.ordinal[e.step[end - 1]], rhythm.ordinal[e.step[end]]
    spans = Spans(e.request[end], rhythm.emit[frm], rhythm.emit[to], frm + 1, to)
    span, a, b = charge_spans(p.run, rhythm, p.ledger, p.windows, spans, p.rules).cut
    length = spans.t1 - spans.t0 + 2
    axis = np.cumsum(length) - length - spans.t0  # lays all gaps one behind the other
    away = union(axis[span] + a, axis[span] + b)
    t0, t1, gap = subtract(axis + spans.t0, axis + spans.t1, *away)
    return gap, spans.request[gap], t0 - axis[gap], t1 - axis[gap]
