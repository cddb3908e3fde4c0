"""The parts of gaps in the order of time, and the gaps themselves a block at a time: for whoever draws them.

A piece is a stretch of a gap that has one owner. What went to an eviction, a hold or a batch without the request is
one piece each; between these, the pieces of the timeline; what nothing covers is residual. A stretch of a decode
segment is owned by several causes in proportion, so a piece has parts, too: they add up to its length exactly, and
those of a gap's pieces to the gap's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stallbook.intervals import expand, subtract, union
from stallbook.partition import Partition
from stallbook.run import Ints
from stallbook.spans import Spans, charge_spans

__all__ = ["Block", "Pieces", "blocks", "find_pieces"]


@dataclass(frozen=True)
class Block:
    """A row a gap, for a slice of a run's gaps by (request, time). end: the row in `Run.emissions` that ends the gap.
    frm, to: as in `Gaps`. row: as in `Partition`. t0, t1: ns."""

    end: Ints
    frm: Ints
    to: Ints
    row: Ints
    t0: Ints
    t1: Ints


@dataclass(frozen=True)
class Pieces:
    """A row a piece [t0, t1) of the gap of that place in a block, ordered by (gap, time); ns.

    cause: the column of `causes` that owns most of it. parts: ns, shape (pieces, causes).
    """

    causes: tuple[str, ...]
    gap: Ints
    t0: Ints
    t1: Ints
    cause: Ints
    parts: Ints


def blocks(p: Partition, size: int) -> Iterator[Block]:
    """Every gap of a partition, at most `size` at a time, without a table of all of them."""
    e, rhythm = p.run.emissions, p.rhythm
    for start in range(1, len(e.step), size):
        end = np.arange(start, min(start + size, len(e.step)))
        end = end[e.request[end] == e.request[end - 1]]
        frm, to = rhythm.ordinal[e.step[end - 1]], rhythm.ordinal[e.step[end]]
        nth = np.searchsorted(p.own, end)
        own = p.own[np.minimum(nth, max(len(p.own) - 1, 0))] == end if len(p.own) else np.zeros(len(end), bool)
        yield Block(end, frm, to, np.where(own, len(rhythm.emit) + nth, to), rhythm.emit[frm], rhythm.emit[to])


def find_pieces(p: Partition, block: Block) -> Pieces:
    """The pieces of the gaps of a block."""
    t0, t1 = block.t0, block.t1
    length = t1 - t0 + 2
    axis = np.cumsum(length) - length - t0  # lays all gaps one behind the other
    gap, a, b, cause = _cuts(p, block)
    keep = b > a
    gap, a, b, cause = gap[keep], a[keep], b[keep], cause[keep]
    rows = np.flatnonzero(t1 > t0)
    away = union(axis[gap] + a, axis[gap] + b)
    a0, a1, at = subtract(axis[rows] + t0[rows], axis[rows] + t1[rows], *away)
    live = rows[at]
    work_gap, w0, w1 = _timeline(p, live, a0 - axis[live], a1 - axis[live])
    idle = subtract(a0, a1, *union(axis[work_gap] + w0, axis[work_gap] + w1))
    idle_gap = live[idle[2]]
    every = np.concatenate([gap, work_gap, idle_gap])
    start = np.concatenate([a, w0, idle[0] - axis[idle_gap]])
    stop = np.concatenate([b, w1, idle[1] - axis[idle_gap]])
    parts = np.zeros((len(every), len(p.ledger.causes)), np.int64)
    at_work = slice(len(gap), len(gap) + len(work_gap))
    if len(work_gap):
        parts[at_work] = (p.ledger.at(w1) - p.ledger.at(w0))[:-1].T
    residual = np.full(len(idle_gap), p.ledger.index("residual"))
    whole = np.concatenate([np.arange(len(gap)), np.arange(at_work.stop, len(every))])
    parts[whole, np.concatenate([cause, residual])] = (stop - start)[whole]
    return _ordered(p.ledger.causes, every, start, stop, parts)


def _cuts(p: Partition, block: Block) -> tuple[Ints, Ints, Ints, Ints]:
    """What rules 1 to 3 give to causes of the request's own: (gap, start, end, cause)."""
    own = np.flatnonzero(block.row >= len(p.rhythm.emit))
    request = p.run.emissions.request[block.end[own]]
    spans = Spans(request, block.t0[own], block.t1[own], block.frm[own] + 1, block.to[own])
    charged = charge_spans(p.run, p.rhythm, p.ledger, p.windows, spans, p.rules)
    span, t0, t1 = charged.cut
    return own[span], t0, t1, charged.cut_cause


def _timeline(p: Partition, gap: Ints, t0: Ints, t1: Ints) -> tuple[Ints, Ints, Ints]:
    """The pieces of the timeline inside each stretch [t0, t1): (gap, start, end)."""
    tl = p.ledger.timeline
    first = np.searchsorted(tl.t1, t0, "right")
    piece, stretch = expand(first, np.maximum(np.searchsorted(tl.t0, t1, "left") - first, 0))
    return gap[stretch], np.maximum(tl.t0[piece], t0[stretch]), np.minimum(tl.t1[piece], t1[stretch])


def _ordered(causes: tuple[str, ...], gap: Ints, t0: Ints, t1: Ints, parts: Ints) -> Pieces:
    """By (gap, time); neighbours that one and the same cause owns most of become one."""
    order = np.lexsort((t0, gap))
    gap, t0, t1, parts = gap[order], t0[order], t1[order], parts[order]
    cause = parts.argmax(axis=1) if len(parts) else gap
    new = np.ones(len(gap), bool)
    new[1:] = (gap[1:] != gap[:-1]) | (cause[1:] != cause[:-1]) | (t0[1:] != t1[:-1])
    first = np.flatnonzero(new)
    if len(first):
        parts = np.add.reduceat(parts, first, axis=0)
        t1 = t1[np.append(first[1:], len(gap)) - 1]
    return Pieces(causes, gap[first], t0[first], t1, cause[first], parts)
