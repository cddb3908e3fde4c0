"""A track a request: its wait for the first token, its gaps named by what owns them, and its evictions and holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np

from stallbook.causes import CLEAN
from stallbook.partition import Partition
from stallbook.pieces import Block, Pieces, blocks, find_pieces
from stallbook.report.perfetto.lanes import Lane, rows
from stallbook.report.perfetto.stream import Stream
from stallbook.run import NEVER, Ints
from stallbook.waits import Waits

__all__ = ["BLOCK", "write_requests"]

BLOCK: Final = 2048
"""Gaps looked at together."""
FIRST: Final = "first token: "

Parts = dict[str, int]


@dataclass(frozen=True)
class _Piece:
    """One piece of a gap, for its slice."""

    t0: int
    t1: int
    name: str
    parts: Parts


class _Tracks:
    """The track of each request, made when it is first needed."""

    def __init__(self, stream: Stream, names: tuple[str, ...]) -> None:
        self._stream, self._names = stream, names
        self._group = stream.track("requests", rank=5, about="A track a request; a gap is named by its primary cause.")
        self._known: dict[int, int] = {}

    def of(self, request: int) -> int:
        if request not in self._known:
            self._known[request] = self._stream.lane(self._names[request], self._group, alone=True)
        return self._known[request]


def write_requests(
    stream: Stream, p: Partition, waits: Waits, flows: Ints, end: int, tick: Callable[[int], None]
) -> None:
    """flows: for each row of `Run.emissions` the number of its flow, or 0. end: closes what never ended, ns."""
    tracks = _Tracks(stream, p.run.requests.names)
    first = _first_emissions(p)
    _write_first_tokens(stream, p, tracks, waits, flows, first)
    for block in blocks(p, BLOCK):
        _write_gaps(stream, p, tracks, block, flows)
        tick(BLOCK)
    _write_away(stream, p, tracks, end)


def _first_emissions(p: Partition) -> Ints:
    """The row of each emitting request's first emission."""
    return np.flatnonzero(np.diff(p.run.emissions.request, prepend=-1))


def _write_first_tokens(
    stream: Stream, p: Partition, tracks: _Tracks, waits: Waits, flows: Ints, first: Ints
) -> None:  # fmt: skip
    """The wait for each request's first token; where its arrival is not on record, the moment of that token."""
    row = {request: i for i, request in enumerate(waits.request.tolist())}
    for at in first.tolist():
        request, flow = int(p.run.emissions.request[at]), int(flows[at]) if len(flows) else 0
        track = tracks.of(request)
        if (i := row.get(request)) is None:
            t = int(p.run.steps.emit[p.run.emissions.step[at]])
            stream.instant(track, t, "first token", "ttft", {}, flow)
            continue
        primary = _label(waits.causes, int(waits.primary[i]))
        args: dict[str, int | str] = {"ttft_ns": int(waits.t1[i] - waits.t0[i]), "primary": primary}
        args |= _told(waits.causes, waits.parts[i].tolist(), "")
        args |= _told(waits.causes, waits.context[i].tolist(), "context_")
        stream.begin(track, int(waits.t0[i]), FIRST + primary, "ttft", args, flow)
        stream.end(track, int(waits.t1[i]))


def _write_gaps(stream: Stream, p: Partition, tracks: _Tracks, block: Block, flows: Ints) -> None:
    """Each gap, named by its primary cause, and in it its pieces, unless it is clean."""
    pieces = _pieces(p, block)
    e, causes = p.run.emissions, p.causes
    columns = zip(
        e.request[block.end].tolist(), block.t0.tolist(), block.t1.tolist(),
        p.run.steps.id[e.step[block.end]].tolist(), e.tokens[block.end].tolist(), p.row_primary[block.row].tolist(),
        p.rows[block.row].tolist(), p.context[block.row].tolist(),
        (flows[block.end] if len(flows) else np.zeros_like(block.end)).tolist(), strict=True,
    )  # fmt: skip
    for i, (request, t0, t1, step, tokens, primary, parts, context, flow) in enumerate(columns):
        name, track = _label(causes, primary), tracks.of(request)
        args: dict[str, int | str] = {"step": step, "gap_ns": t1 - t0, "tokens": tokens, "primary": name}
        args |= _told(causes, parts, "") | _told(causes, context, "context_")
        stream.begin(track, t0, name, "gap", args, flow)
        for piece in pieces[i]:
            stream.begin(track, piece.t0, piece.name, "part", piece.parts)
            stream.end(track, piece.t1)
        stream.end(track, t1)


def _pieces(p: Partition, block: Block) -> defaultdict[int, list[_Piece]]:
    """The pieces of the gaps of a block that are not clean, by the gap's place in it."""
    out: defaultdict[int, list[_Piece]] = defaultdict(list)
    owned = np.flatnonzero(p.row_primary[block.row] >= 0)
    if len(owned):
        some = Block(*(getattr(block, f)[owned] for f in ("end", "frm", "to", "row", "t0", "t1")))
        for gap, piece in _each(find_pieces(p, some)):
            out[int(owned[gap])].append(piece)
    return out


def _each(found: Pieces) -> Iterator[tuple[int, _Piece]]:
    columns = zip(
        found.gap.tolist(), found.t0.tolist(), found.t1.tolist(), found.cause.tolist(), found.parts.tolist(),
        strict=True,
    )  # fmt: skip
    for gap, t0, t1, cause, parts in columns:
        yield gap, _Piece(t0, t1, found.causes[cause], _told(found.causes, parts, ""))


def _write_away(stream: Stream, p: Partition, tracks: _Tracks, end: int) -> None:
    """Evictions and holds as the log has them, on a track below their request's."""
    e, h = p.run.evictions, p.run.holds
    none = np.full(len(h.t0), -1)
    columns = [
        np.concatenate(pair)
        for pair in (
            (e.request, h.request), (e.t0, h.t0), (e.t1, h.t1), (np.full(len(e.t0), -1), h.kind),
            (e.recompute, none), (e.lost_tokens, none),
        )
    ]  # fmt: skip
    order = np.lexsort((-columns[2], columns[1], columns[0]))
    for request, windows in groupby(rows(columns, order), key=itemgetter(0)):
        lane = Lane(stream, "evicted or held", tracks.of(request))
        for _, t0, t1, kind, recompute, lost in windows:
            args: dict[str, int | str] = {} if t1 < NEVER else {"ended": "never"}
            args |= {key: n for key, n in (("recompute", recompute), ("lost_tokens", lost)) if n >= 0}
            name, category = ("evicted", "eviction") if kind < 0 else (f"held: {p.run.names[kind]}", "hold")
            lane.slice(t0, max(t0, min(t1, end)), name, category, args)
        lane.close()


def _label(causes: tuple[str, ...], primary: int) -> str:
    return causes[primary] if primary >= 0 else CLEAN


def _told(causes: tuple[str, ...], amounts: list[int], prefix: str) -> Parts:
    return {f"{prefix}{cause}_ns": ns for cause, ns in zip(causes, amounts, strict=True) if ns}
