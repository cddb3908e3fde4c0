"""What ran in a stall: lanes of time, as charged and as recorded, and which other streams stood still.

The first lane is the stall's own partition: its pieces add up to the stall's parts, to the nanosecond.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallbook.charges import SPLIT, segment_cause
from stallbook.counters import origin_ns
from stallbook.intervals import bisect
from stallbook.overtime import occupied
from stallbook.partition import Partition
from stallbook.run import Ints
from stallbook.spans import Spans, charge_spans
from stallbook.stalls import Stall, Streams, find_streams
from stallbook.timeline import DECODE

__all__ = ["Lane", "Piece", "Scene", "Stream", "find_scenes"]

PIECES: Final = 120
"""A lane with more pieces than this is told in slices of equal length."""
SLICES: Final = 100
STREAMS: Final = 8
"""Other streams shown."""
FLOWING: Final = 100
"""Tokens that follow each other within this part of what is shown are told as one flow."""
SEEN: Final = 1000
"""A collection that is shorter than this part of what is shown would not be seen."""
AROUND: Final = 0.12
"""What is shown before and after a stall, as a part of its length."""


@dataclass(frozen=True)
class Piece:
    """[t0, t1) of a lane, ns since the stall began: what it was by cause, in ns that add up to it at most."""

    t0: int
    t1: int
    parts: dict[str, int]


@dataclass(frozen=True)
class Lane:
    """A row of the picture. sliced: its pieces are slices of equal length, not events."""

    name: str
    pieces: tuple[Piece, ...]
    sliced: bool


@dataclass(frozen=True)
class Stream:
    """When a request had tokens around the stall, ns since it began: from the first to the last of each flow of them,
    which is one stamp where it is one token. still: where it waited at the stall's middle.
    """

    request: str
    flows: tuple[tuple[int, int], ...]
    still: tuple[int, int]


@dataclass(frozen=True)
class Scene:
    """One stall. before, after: how far the lanes reach beyond it, ns. others: the longest standing still first."""

    length: int
    around: int
    lanes: tuple[Lane, ...]
    own: Stream
    others: tuple[Stream, ...]


@dataclass(frozen=True)
class _Span:
    """A stall on the run's clock. engine: where its token was emitted, the end of what the engine is charged."""

    request: int
    t0: int
    t1: int
    engine: int
    handed: int


def find_scenes(p: Partition, stalls: Sequence[Stall], boundary: str = "engine") -> tuple[Scene, ...]:
    """A scene of each stall, whose gaps are those at `boundary`."""
    if not stalls:
        return ()
    origin = origin_ns(p.run)
    index = {name: i for i, name in enumerate(p.run.requests.names)}
    spans = [_span(index[s.request], s, origin) for s in stalls]
    streams, charged = find_streams(p, boundary), _charged(p, spans)
    return tuple(_scene(p, span, lane, streams) for span, lane in zip(spans, charged, strict=True))


def _span(request: int, s: Stall, origin: int) -> _Span:
    t0 = s.start_ns + origin
    t1 = t0 + s.length_ns
    handed = t1 - s.parts_ns.get("network", 0)
    return _Span(request, t0, t1, handed - s.parts_ns.get("frontend", 0), handed)


def _scene(p: Partition, span: _Span, charged: Lane, streams: Streams) -> Scene:
    length = span.t1 - span.t0
    around = max(int(AROUND * length), 1)
    own, others = _streams(p, span, streams, around)
    lanes = (charged, *_recorded(p, span, around))
    return Scene(length, around, tuple(lane for lane in lanes if lane.pieces), own, others)


def _charged(p: Partition, spans: Sequence[_Span]) -> list[Lane]:
    """The partition of each stall, piece by piece. One look at the ledger for all, which may walk all of it."""
    t0, t1 = (np.array(column, np.int64) for column in zip(*((s.t0, s.engine) for s in spans), strict=True))
    first, to = np.searchsorted(p.rhythm.emit, t0, "right"), np.searchsorted(p.rhythm.emit, t1, "left")
    of = Spans(np.array([s.request for s in spans], np.int64), t0, t1, first, to)
    row, cut0, cut1 = charge_spans(p.run, p.rhythm, p.ledger, p.windows, of, p.rules).cut
    cuts = [_Cuts.of(p, span, cut0[row == i], cut1[row == i]) for i, span in enumerate(spans)]
    marks = [_marks(p, span, cut) for span, cut in zip(spans, cuts, strict=True)]
    upto = np.split(p.ledger.at(np.concatenate([m for m, _ in marks])), np.cumsum([len(m) for m, _ in marks])[:-1], 1)
    out = []
    for span, cut, (mark, sliced), told in zip(spans, cuts, marks, upto, strict=True):
        pieces = tuple(_joined(_split(p, span, cut, mark, told)))
        out.append(Lane("charged", pieces, sliced and len(pieces) > SLICES // 2))
    return out


@dataclass(frozen=True)
class _Cuts:
    """What of a stall went to rules 1 to 3: disjoint, sorted, with its cause."""

    t0: Ints
    t1: Ints
    cause: tuple[str, ...]

    @classmethod
    def of(cls, p: Partition, span: _Span, t0: Ints, t1: Ints) -> _Cuts:
        w, order = p.windows, np.argsort(t0, kind="stable")
        t0, t1 = t0[order], t1[order]
        mine = np.flatnonzero(w.request == span.request)
        causes = []
        for a, b in zip(t0.tolist(), t1.tolist(), strict=True):
            holds = mine[(w.t0[mine] <= a) & (w.t1[mine] >= b)]
            causes.append(p.ledger.causes[w.cause[holds[0]]] if len(holds) else "unscheduled")
        return cls(t0, t1, tuple(causes))


def _marks(p: Partition, span: _Span, cuts: _Cuts) -> tuple[Ints, bool]:
    """Where a stall is cut into pieces, and whether into slices, since it has too many of its own."""
    tl = p.ledger.timeline
    lo, hi = np.searchsorted(tl.t1, span.t0, "right"), np.searchsorted(tl.t0, span.engine, "left")
    sliced = int(hi - lo) > PIECES
    if sliced:
        own = span.t0 + (np.arange(SLICES + 1) * ((span.engine - span.t0) / SLICES)).astype(np.int64)
    else:
        own = np.concatenate([tl.t0[lo:hi], tl.t1[lo:hi]])
    marks = np.unique(np.concatenate([own, cuts.t0, cuts.t1, [span.t0, span.engine]]))
    return marks[(marks >= span.t0) & (marks <= span.engine)], sliced


def _split(p: Partition, span: _Span, cuts: _Cuts, marks: Ints, upto: Ints) -> Iterator[Piece]:
    """The pieces between two marks each, and what passed after emission."""
    for j, (a, b) in enumerate(itertools.pairwise(marks.tolist())):
        at = int(np.searchsorted(cuts.t0, a, "right")) - 1
        if at >= 0 and b <= cuts.t1[at]:
            parts = {cuts.cause[at]: b - a}
        else:
            *told, covered = (upto[:, j + 1] - upto[:, j]).tolist()
            parts = {c: ns for c, ns in zip(p.ledger.causes, told, strict=True) if ns}
            if b - a > covered:
                parts["residual"] = b - a - covered
        yield Piece(a - span.t0, b - span.t0, parts)
    for cause, a, b in (("frontend", span.engine, span.handed), ("network", span.handed, span.t1)):
        if b > a:
            yield Piece(a - span.t0, b - span.t0, {cause: b - a})


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Neighbours that are one and the same cause throughout, as one."""
    last: Piece | None = None
    for piece in pieces:
        if (
            last
            and last.t1 == piece.t0
            and len(last.parts) == len(piece.parts) == 1
            and {*last.parts} == {*piece.parts}
        ):
            (cause,) = piece.parts
            last = Piece(last.t0, piece.t1, {cause: last.parts[cause] + piece.parts[cause]})
            continue
        if last:
            yield last
        last = piece
    if last:
        yield last


def _recorded(p: Partition, span: _Span, around: int) -> Iterator[Lane]:
    """What the log holds of the time around a stall, whoever waited for it."""
    s, pauses = p.run.segments, p.run.pauses
    window = (span.t0 - around, span.t1 + around)
    causes = [segment_cause(name) for name in p.run.names]
    inside = (s.t1 > np.maximum(s.t0, window[0])) & (s.t0 < window[1])
    for name, device in (("engine", 0), ("device", 1)):
        rows = np.flatnonzero(inside & (s.device == device))
        if len(rows) > PIECES:
            yield _slices(name, [causes[i] for i in s.name[rows].tolist()], s.t0[rows], s.t1[rows], window, span.t0)
        else:
            rows = rows[np.argsort(s.t0[rows] - s.t1[rows], kind="stable")]  # what lies inside another comes after it
            yield Lane(name, tuple(_segment(p, i, causes, window, span.t0) for i in rows.tolist()), sliced=False)
    for process in np.unique(pauses.process).tolist():
        rows = np.flatnonzero((pauses.process == process) & (pauses.t1 > window[0]) & (pauses.t0 < window[1]))
        length = pauses.t1[rows] - pauses.t0[rows]
        rows = rows[length * SEEN >= window[1] - window[0]]
        held = zip(pauses.t0[rows].tolist(), pauses.t1[rows].tolist(), strict=True)
        pieces = tuple(_piece(a, b, {"gc": 1}, window, span.t0) for a, b in held)
        yield Lane(f"collections, {p.run.names[process]}", pieces, sliced=False)


def _piece(t0: int, t1: int, shares: dict[str, int], window: tuple[int, int], origin: int) -> Piece:
    """What of [t0, t1) lies in the window, shared out among causes."""
    t0, t1 = max(t0, window[0]), min(t1, window[1])
    total = sum(shares.values())
    return Piece(t0 - origin, t1 - origin, {c: (t1 - t0) * n // total for c, n in shares.items() if n})


def _segment(p: Partition, row: int, causes: Sequence[str], window: tuple[int, int], origin: int) -> Piece:
    """A segment: its cause, a decode shared out as its whole step was charged."""
    s, charges = p.run.segments, p.ledger.charges
    cause, step = causes[s.name[row]], int(s.step[row])
    shares = {cause: 1}
    if cause == DECODE:
        of = dict(zip(SPLIT, charges.split[:, step].tolist(), strict=True))
        shares = {c: n for c, n in of.items() if n}
        rest = int(charges.m[step]) - sum(shares.values())
        shares = shares | ({"fwd": rest} if rest > 0 or not shares else {})
        shares = shares if sum(shares.values()) > 0 else {"fwd": 1}
    return _piece(int(s.t0[row]), int(s.t1[row]), shares, window, origin)


def _slices(name: str, causes: list[str], t0: Ints, t1: Ints, window: tuple[int, int], origin: int) -> Lane:
    """Slices of equal length: how much of each was what. What lies inside another counts beside it."""
    edges = window[0] + (np.arange(SLICES + 1) * ((window[1] - window[0]) / SLICES)).astype(np.int64)
    of = np.array(["fwd" if c == DECODE else c for c in causes])
    held = {c: occupied(t0[of == c], t1[of == c], edges) for c in sorted({*of.tolist()})}
    pieces = []
    for i, (a, b) in enumerate(itertools.pairwise(edges.tolist())):
        parts = {c: int(ns[i]) for c, ns in held.items() if ns[i] >= 1}
        over = max(sum(parts.values()) / max(b - a, 1), 1.0)
        if parts:
            pieces.append(Piece(a - origin, b - origin, {c: int(ns / over) for c, ns in parts.items()}))
    return Lane(name, tuple(pieces), sliced=True)


def _streams(p: Partition, span: _Span, of: Streams, around: int) -> tuple[Stream, tuple[Stream, ...]]:
    """The stall's own stream, and others that were live at its middle: of those that stood still and those that
    went on, as many as there is room for.
    """
    middle = (span.t0 + span.t1) // 2
    after = bisect(of.t, of.lo, of.hi, np.full(len(of.lo), middle + 1))
    live = np.flatnonzero((after > of.lo) & (after < of.hi))
    still = np.minimum(of.t[after[live]], span.t1) - np.maximum(of.t[after[live] - 1], span.t0)
    order = live[np.argsort(-still, kind="stable")]
    own = [i for i in order.tolist() if of.request[i] == span.request]
    rest = [i for i in order.tolist() if of.request[i] != span.request]
    if len(rest) > STREAMS:
        rest = rest[: STREAMS // 2] + rest[-(STREAMS // 2) :]
    told = [_stream(p, span, of, i, int(after[i]), around) for i in rest]
    if own:
        return _stream(p, span, of, own[0], int(after[own[0]]), around), tuple(told)
    return Stream(p.run.requests.names[span.request], (), (0, span.t1 - span.t0)), tuple(told)


def _stream(p: Partition, span: _Span, of: Streams, i: int, after: int, around: int) -> Stream:
    lo, hi = int(of.lo[i]), int(of.hi[i])
    a, b = np.searchsorted(of.t[lo:hi], [span.t0 - around, span.t1 + around]) + lo
    tokens = of.t[a:b] - span.t0
    cut = np.flatnonzero(np.diff(tokens) > (span.t1 - span.t0 + 2 * around) // FLOWING)
    starts, ends = tokens[np.append(0, cut + 1)[: len(tokens)]], tokens[np.append(cut, len(tokens) - 1)[: len(tokens)]]
    still = (int(of.t[after - 1]) - span.t0, int(of.t[after]) - span.t0)
    return Stream(p.run.requests.names[of.request[i]], tuple(zip(starts.tolist(), ends.tolist(), strict=True)), still)
