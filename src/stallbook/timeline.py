"""Who owns each instant: device windows, pauses and host segments resolved to disjoint pieces (rules 4 to 6).

This holds for every request alike. What is a request's own (evicted, held, left out of a batch) is cut out
of it by `stallbook.partition`. What a piece's time is charged to is decided by `stallbook.charges`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from stallbook import fast
from stallbook.intervals import before, overlapping, resolve, subtract, sums, union
from stallbook.run import UNKNOWN, Ints, Run

__all__ = ["DECODE", "PAUSE", "POST_SEGMENTS", "Timeline", "build_timeline", "path_pauses"]

POST_SEGMENTS = {"tok": "tok", "swap": "preempt", "prefill": "prefill", "decode": "decode"}
"""The segments that the post knows, and what it charges them to. `decode` is split further."""

DECODE = "decode"
PAUSE = -1


@dataclass(frozen=True)
class Timeline:
    """Disjoint pieces of time, sorted. A piece belongs to a segment (its row) or to a pause (`PAUSE`).

    `done` is how much of the segment's net lies before the piece. `origin` is the piece's net piece: the
    stretch of the segment's net that it was cut from, in `net_*`, which differs only on the device lane, where
    a window's net counts all of it but a later step's window is on nobody's path yet. (`net_*` may list pauses too.)
    """

    t0: Ints
    t1: Ints
    segment: Ints
    done: Ints
    origin: Ints
    net: Ints
    """Net of each segment (row of `Run.segments`), ns."""
    paused: Ints
    """Pause time inside each segment that rules 4 to 6 gave to the pause, ns."""
    net_t0: Ints
    net_segment: Ints
    net_length: Ints
    net_done: Ints
    duplicates: int
    """Identical windows of one step and lane."""
    hidden_t0: Ints
    hidden_t1: Ints
    """Host work, pauses included, behind a busy device: disjoint, sorted. Explains; is charged to nothing."""


def _host_only(t0: Ints, t1: Ints, segment: Ints, done: Ints, net: Ints, paused: Ints) -> Timeline:
    """A timeline of host segments that do not overlap: each piece is its own net piece."""
    pieces = np.arange(len(t0))
    return Timeline(t0, t1, segment, done, pieces, net, paused, t0, segment, t1 - t0, done, 0, pieces[:0], pieces[:0])


@dataclass(frozen=True)
class _Lane:
    """Disjoint, sorted pieces of one lane: start, end, segment row, net before the piece, net piece."""

    t0: Ints
    t1: Ints
    segment: Ints
    done: Ints
    origin: Ints


def path_pauses(run: Run) -> tuple[Ints, Ints]:
    """Pauses of processes on the token's path (`engine` and every `worker:N`), as a union over processes."""
    on_path = np.array([re.fullmatch(r"engine|worker:\d+", n) is not None for n in run.names], bool)
    keep = on_path[run.pauses.process] if len(run.pauses.t0) else np.zeros(0, bool)
    return union(run.pauses.t0[keep], run.pauses.t1[keep])


def build_timeline(run: Run, rules: str) -> Timeline:
    """Resolve a run's windows to pieces. Under `post` only its own segments on the host lane take part."""
    s = run.segments
    known = np.array([rules == "full" or n in POST_SEGMENTS for n in run.names], bool)
    live = (s.t1 > s.t0) & (known[s.name] if len(s.name) else True)
    if rules == "post":
        live &= s.device == 0
    pauses = path_pauses(run)
    if fast.worth(len(run.emissions.step)) and not (live & (s.device == 1)).any():
        disjoint, *found = fast.cut_host(s.t0, s.t1, live, *pauses)
        if disjoint:
            return _host_only(*found)
    device = _device_lane(run, np.flatnonzero(live & (s.device == 1)))
    host0, host1, host = _host_lane(run, np.flatnonzero(live & (s.device == 0)))
    busy = union(device[0].t0, device[0].t1)
    work = union(np.concatenate([host0, pauses[0]]), np.concatenate([host1, pauses[1]]))
    gc0, gc1, _ = subtract(*pauses, *busy)
    a0, a1, row = subtract(host0, host1, *busy)
    host = host[row]
    paused = sums(host, a1 - a0, len(s.t0))
    a0, a1, row = subtract(a0, a1, *pauses)
    host = host[row]
    lane = _Lane(a0, a1, host, _before(host, a1 - a0), np.arange(len(host)) + len(device[1].t0))
    net = sums(host, a1 - a0, len(s.t0))
    paused = paused - net
    net = net + sums(device[1].segment, device[1].t1 - device[1].t0, len(s.t0))
    pause = _Lane(gc0, gc1, np.full(len(gc0), PAUSE), np.zeros(len(gc0), np.int64), np.full(len(gc0), -1))
    merged = _merge([device[0], pause, lane])
    nets = [device[1], lane]
    return Timeline(
        merged.t0, merged.t1, merged.segment, merged.done, merged.origin, net, paused,
        np.concatenate([n.t0 for n in nets]), np.concatenate([n.segment for n in nets]),
        np.concatenate([n.t1 - n.t0 for n in nets]), np.concatenate([n.done for n in nets]),
        _identical(run, np.flatnonzero(live)), *_both(*work, *busy),
    )  # fmt: skip


def _host_lane(run: Run, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Host segments: the oldest step's, of that step's the innermost, of equal ones the first by name."""
    s = run.segments
    t0, t1 = s.t0[rows], s.t1[rows]
    priority = _innermost(run, rows) if overlapping(t0, t1) else []
    t0, t1, piece = resolve(t0, t1, priority)
    return t0, t1, rows[piece]


def _innermost(run: Run, rows: Ints) -> list[tuple[int, int, int, str]]:
    """Rule 6 as a sort key: least first."""
    s = run.segments
    columns = zip(s.step[rows].tolist(), s.t0[rows].tolist(), s.t1[rows].tolist(), s.name[rows].tolist(), strict=True)
    return [(step, -t0, t1 - t0, run.names[name]) for step, t0, t1, name in columns]


def _device_lane(run: Run, rows: Ints) -> tuple[_Lane, _Lane]:
    """Device windows: the pieces that are on the path, and the net pieces they were cut from."""
    if not len(rows):
        return _no_lane()
    net = _device_nets(run, rows)
    step = run.segments.step[net.segment]
    # A window counts from the first interval that its step, or a later one, ends.
    start = np.maximum(net.t0, _emitted_before(run)[step])
    keep = np.flatnonzero(net.t1 > start)
    order = keep[np.argsort(start[keep], kind="stable")]
    t0, t1, piece = resolve(start[order], net.t1[order], step[order].tolist())
    origin = order[piece]
    return _Lane(t0, t1, net.segment[origin], net.done[origin] + t0 - net.t0[origin], origin), net


def _device_nets(run: Run, rows: Ints) -> _Lane:
    """Each device window less the inner windows of its own step."""
    s = run.segments
    if not overlapping(s.t0[rows], s.t1[rows]):
        zero = np.zeros(len(rows), np.int64)
        return _Lane(s.t0[rows], s.t1[rows], rows, zero, np.arange(len(rows)))
    by_step = rows[np.argsort(s.step[rows], kind="stable")]
    found = []
    for group in np.split(by_step, np.flatnonzero(np.diff(s.step[by_step])) + 1):
        t0, t1, piece = resolve(s.t0[group], s.t1[group], _innermost(run, group))
        found.append(np.array([t0, t1, group[piece]]))
    t0, t1, segment = np.concatenate(found, axis=1)
    order = np.argsort(t0, kind="stable")
    t0, t1, segment = t0[order], t1[order], segment[order]
    return _Lane(t0, t1, segment, _before(segment, t1 - t0), np.arange(len(t0)))


def _emitted_before(run: Run) -> Ints:
    """For each step the last emission of an earlier step: until then, its device work is on nobody's path."""
    emit = np.where(run.steps.emit == UNKNOWN, np.iinfo(np.int64).min, run.steps.emit)
    return np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(emit)[:-1]]) if len(emit) else emit


def _before(segment: Ints, length: Ints) -> Ints:
    """For each piece the length of its segment's earlier pieces (pieces are in time order)."""
    if not len(segment) or np.bincount(segment).max() == 1:
        return np.zeros(len(segment), np.int64)
    order = np.argsort(segment, kind="stable")
    out = np.empty(len(segment), np.int64)
    out[order] = before(segment[order], length[order])
    return out


def _merge(lanes: list[_Lane]) -> _Lane:
    columns = [np.concatenate([getattr(lane, f) for lane in lanes]) for f in ("t0", "t1", "segment", "done", "origin")]
    if sum(len(lane.t0) > 0 for lane in lanes) > 1:
        order = np.argsort(columns[0], kind="stable")
        columns = [c[order] for c in columns]
    return _Lane(*columns)


def _both(a0: Ints, a1: Ints, b0: Ints, b1: Ints) -> tuple[Ints, Ints]:
    """Where both of two sets of intervals are."""
    return subtract(a0, a1, *subtract(a0, a1, b0, b1)[:2])[:2] if len(b0) else (b0, b1)


def _no_lane() -> tuple[_Lane, _Lane]:
    empty = np.zeros(0, np.int64)
    lane = _Lane(empty, empty, empty, empty, empty)
    return lane, lane


def _identical(run: Run, rows: Ints) -> int:
    """How many windows repeat the very window of another one of their step and lane."""
    s = run.segments
    same = np.ones(max(len(rows) - 1, 0), bool)
    for column in (s.t0, s.t1, s.step, s.device):
        same &= np.diff(column[rows]) == 0
    return int(same.sum())
