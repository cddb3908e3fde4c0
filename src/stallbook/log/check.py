"""Contradictions: what no engine can have done, named with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from stallbook.log.arrays import Columns, Mask, first, order, take
from stallbook.log.draft import TABLES, Column, Draft
from stallbook.run import NEVER, UNKNOWN, Emissions, Ints, Requests, Steps

__all__ = ["emissions", "known_steps", "life", "lives", "outside_range", "ranges", "segments", "settings", "steps"]

LIMIT: Final = 2**61
"""Stamps lie within this of zero (nanoseconds since 1970 do, until 2043), so that differences cannot overflow."""

MOST_TOKENS: Final = 2**48
"""Counts of tokens are below it, so that sums of many do not overflow."""
_DEEPEST: Final = 100
"""How far settings and facts nest; what lies deeper is left out."""

_CLOCK = "stamp both ends with one monotonic clock, in nanoseconds"
_WRITER = "fix what wrote the log"


_BOUNDS: Final = {
    "count": (-1, LIMIT), "sure count": (0, LIMIT), "token count": (-1, MOST_TOKENS),
    "sure token count": (0, MOST_TOKENS), "flag": (-1, 2), "graph": (0, 3), "blocked": (-1, 4),
}  # fmt: skip


def _bounds(draft: Draft, column: Column) -> tuple[int, int]:
    of_draft = {"request": (0, len(draft.request_names)), "owner": (-1, len(draft.request_names))}
    if column.kind == "name":
        return 0, len(draft.names)
    return of_draft.get(column.kind) or _BOUNDS.get(column.kind, (1 - LIMIT, LIMIT))


def outside_range(draft: Draft, column: Column, values: Ints) -> Mask:
    """Which values a column of that kind cannot hold."""
    low, high = _bounds(draft, column)
    bad: Mask = (values < low) | (values >= high)
    if column.kind == "time or unknown":
        bad &= values != UNKNOWN
    elif column.kind == "end":
        bad &= values != NEVER
    return bad


def ranges(draft: Draft, name: str, table: Columns) -> None:
    """Every column of a raw table holds what its kind allows."""
    origin = table["origin"]
    if not len(origin):
        return
    for column, spec in TABLES[name].items():
        values = table[column]
        bad = outside_range(draft, spec, values)
        if bad.any():
            at, low = first(bad, origin), _bounds(draft, spec)[0]
            what = "negative" if low > values[at] >= -LIMIT else "out of range"
            raise draft.error("range", name, origin[at], f"{column} = {values[at]} is {what}", _WRITER)
    if "t0" in table:
        backwards = table["t0"] > table["t1"]
        if backwards.any():
            at = first(backwards, origin)
            what = f"t1 = {table['t1'][at]} lies before t0 = {table['t0'][at]}"
            raise draft.error("backwards", name, origin[at], what, _CLOCK)


def settings(told: Mapping[str, Any]) -> dict[str, Any]:
    """Settings or facts as any JSON writer can take them: what is no finite number, or too deep, becomes None.

    They only explain a recording, and are not worth refusing it.
    """

    def plain(value: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            return None
        if isinstance(value, Mapping):
            return {plain(str(key), depth): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item, depth + 1) for item in value]
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        if isinstance(value, (int, float)):
            return value if abs(value) < 1e300 else None  # also None for what is not a number
        return value

    return {plain(str(key), 0): plain(value, 1) for key, value in told.items()}


def steps(draft: Draft, table: Columns) -> None:
    """Steps, ordered by id: each id once, no start before that of a lower id, room for the decode rows."""
    step, t0, origin = table["id"], table["t0"], table["origin"]
    twice = np.flatnonzero(step[1:] == step[:-1])
    if len(twice):
        at = int(twice[np.argmin(origin[twice + 1])])
        what = f"step {step[at]} is there twice (first: {_other(draft, 'steps', origin[at])})"
        raise draft.error("duplicate-step", "steps", origin[at + 1], what, "give each step an id of its own")
    falls = np.flatnonzero(t0[1:] < t0[:-1])
    if len(falls):
        at = int(falls[0]) + 1
        what = f"step {step[at]} starts at {t0[at]}, before step {step[at - 1]} at {t0[at - 1]}"
        raise draft.error("backwards", "steps", origin[at], what, "number steps in the order in which they start")
    small = (table["padded"] >= 0) & (table["padded"] < table["decode_tokens"])
    if small.any():
        at = first(small, origin)
        what = f"padded = {table['padded'][at]} is below the {table['decode_tokens'][at]} decode rows of its step"
        remedy = "write the padded size of the whole batch, or leave the field out"
        raise draft.error("padded", "steps", origin[at], what, remedy)


def known_steps(draft: Draft, name: str, table: Columns, ids: Ints) -> Ints:
    """The row of each step id in the table; an id of no step is an error."""
    step = table["step"]
    if not len(step):
        return np.empty(0, dtype=np.int64)
    if not len(ids):
        rows, unknown = step, np.ones(len(step), dtype=np.bool_)
    elif int(ids[-1]) - int(ids[0]) == len(ids) - 1:  # consecutive ids, the usual case: no search
        rows = step - ids[0]
        unknown = (step < ids[0]) | (step > ids[-1])
    else:
        rows = np.minimum(np.searchsorted(ids, step), len(ids) - 1)
        unknown = ids[rows] != step
    if unknown.any():
        at = first(unknown, table["origin"])
        remedy = "write a step line for every step that anything refers to"
        raise draft.error("unknown-step", name, table["origin"][at], f"there is no step {step[at]}", remedy)
    return rows


def emissions(draft: Draft, table: Columns, rows: Ints, step: Steps) -> None:
    """One stamp a step, none before the step's start, none falling. `step.emit` holds some stamp of each step."""
    t, origin = table["t"], table["origin"]
    twice = step.emit[rows] != t
    if twice.any():
        mine = np.flatnonzero(rows == rows[first(twice, origin)])
        mine = mine[np.argsort(origin[mine], kind="stable")]
        at, other = int(mine[np.argmax(t[mine] != t[mine[0]])]), int(mine[0])
        what = f"step {table['step'][at]} emits at {t[at]}, but also at {t[other]}"
        what += f" ({_other(draft, 'emits', origin[other])})"
        raise draft.error("two-stamps", "emits", origin[at], what, "stamp all emissions of a step once, together")
    early = t < step.t0[rows]
    if early.any():
        at = first(early, origin)
        what = f"step {table['step'][at]} emits at {t[at]}, before it starts at {step.t0[rows[at]]}"
        raise draft.error("early-emission", "emits", origin[at], what, _CLOCK)
    emitting = np.flatnonzero(step.emit != UNKNOWN)
    falls = np.flatnonzero(np.diff(step.emit[emitting]) < 0)
    if len(falls):
        before, after = emitting[falls[0]], emitting[falls[0] + 1]
        at = first(rows == after, origin)
        what = f"step {step.id[after]} emits at {step.emit[after]}, before step {step.id[before]}"
        what += f" at {step.emit[before]}"
        raise draft.error("backwards", "emits", origin[at], what, "number steps in the order in which they emit")


def emission_in_pause(draft: Draft, table: Columns, pauses: Columns, emit: Ints) -> None:
    """No emission lies strictly inside a pause (given merged, ordered) of the engine's own process."""
    stamps = np.unique(emit[emit != UNKNOWN])
    inside = np.searchsorted(stamps, pauses["t0"], "right")
    hit = inside < np.searchsorted(stamps, pauses["t1"], "left")
    if hit.any():
        pause = int(np.argmax(hit))
        stamp = stamps[inside[pause]]
        at = first(table["t"] == stamp, table["origin"])
        what = f"emission at {stamp} inside a pause of the engine, {pauses['t0'][pause]} to {pauses['t1'][pause]}"
        what += f" ({_other(draft, 'pauses', pauses['origin'][pause])})"
        remedy = "a stopped process emits nothing: check that pause and emission share a clock, and the pause's process"
        raise draft.error("emission-in-pause", "emits", table["origin"][at], what, remedy)


def segments(draft: Draft, table: Columns, rows: Ints, step: Steps, names: tuple[str, ...]) -> None:
    """Host segments lie within their step, device windows do not start before it, and none of a lane cross."""
    t0, t1, host, origin = table["t0"], table["t1"], table["device"] != 1, table["origin"]
    outside = (t0 < step.t0[rows]) | (host & (t1 > step.t1[rows]))
    if outside.any():
        at = first(outside, origin)
        name = names[table["name"][at]]
        where = f"step {table['step'][at]} ({step.t0[rows[at]]} to {step.t1[rows[at]]})"
        verb = "lies outside" if host[at] else "starts before"
        what = f"{'host' if host[at] else 'device'} segment {name!r}, {t0[at]} to {t1[at]}, {verb} {where}"
        raise draft.error("outside-step", "segments", origin[at], what, "give it to the step in which it ran")
    _crossing(draft, table, rows, names)


def _crossing(draft: Draft, table: Columns, rows: Ints, names: tuple[str, ...]) -> None:
    lane = {"lane": rows * 2 + (table["device"] == 1), **{k: table[k] for k in ("t0", "t1", "name", "origin")}}
    if not np.all(lane["t0"] < lane["t1"]):
        lane = take(lane, lane["t0"] < lane["t1"])  # what has no length crosses nothing
    lane = take(lane, order(lane["lane"], lane["t0"], -lane["t1"]))
    if not len(lane["t0"]):
        return
    overlap = (lane["lane"][1:] == lane["lane"][:-1]) & (lane["t0"][1:] < lane["t1"][:-1])
    if not overlap.any():
        return
    busy = np.unique(lane["lane"][1:][overlap])
    lane = take(lane, np.isin(lane["lane"], busy))
    crossed = _depths_differ(lane["lane"], lane["t0"], lane["t1"])
    if crossed.any():
        _name_crossing(draft, take(lane, lane["lane"] == lane["lane"][int(np.argmax(crossed))]), names)


def _depths_differ(lane: Ints, t0: Ints, t1: Ints) -> Mask:
    """Windows nest exactly if each closes at the depth at which it opened: like brackets, ends before starts."""
    n = len(t0)
    index = np.arange(n)
    closes = np.concatenate((np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)))
    when = np.concatenate((t0, t1))
    # Of several ends at one instant the innermost comes first; rows are ordered by (t0, longest first).
    ranks = np.lexsort((np.concatenate((index, -index)), 1 - closes, when, np.concatenate((lane, lane))))
    depth = np.empty(2 * n, dtype=np.int64)
    depth[ranks] = np.cumsum(1 - 2 * closes[ranks])
    different: Mask = depth[:n] != depth[n:] + 1
    return different


def _name_crossing(draft: Draft, lane: Columns, names: tuple[str, ...]) -> None:
    open_: list[int] = []
    for i in range(len(lane["t0"])):
        while open_ and lane["t1"][open_[-1]] <= lane["t0"][i]:
            open_.pop()
        if open_ and lane["t1"][open_[-1]] < lane["t1"][i]:
            late, early = (i, open_[-1])
            if lane["origin"][late] < lane["origin"][early]:
                late, early = early, late
            mine, its = (names[lane["name"][k]] for k in (late, early))
            what = f"segment {mine!r}, {lane['t0'][late]} to {lane['t1'][late]}, crosses {its!r}, "
            what += f"{lane['t0'][early]} to {lane['t1'][early]} ({_other(draft, 'segments', lane['origin'][early])})"
            remedy = "segments of one step and lane may touch or nest, not cross"
            raise draft.error("crossing", "segments", lane["origin"][late], what, remedy)
        open_.append(i)


def lives(draft: Draft, arrivals: Columns, finishes: Columns) -> None:
    """Each request id arrives once and finishes once."""
    for name, table, verb in (("arrivals", arrivals, "arrives"), ("finishes", finishes, "finishes")):
        rows = np.lexsort((table["origin"], table["request"]))
        request, origin = table["request"][rows], table["origin"][rows]
        twice = np.flatnonzero(request[1:] == request[:-1])
        if len(twice):
            at = int(twice[np.argmin(origin[twice + 1])])
            what = f"request {draft.request_names[request[at]]!r} {verb} twice"
            what += f" (first: {_other(draft, name, origin[at])})"
            raise draft.error("request-twice", name, origin[at + 1], what, "give each request an id of its own")


def life(draft: Draft, name: str, table: Columns, column: str, requests: Requests, after: bool = True) -> None:
    """No event of a request lies before its arrival or (where `after`) after its finish."""
    request, t, origin = table["request"], table[column], table["origin"]
    names = requests.names
    early = t < requests.arrive[request]
    if early.any():
        at = first(early, origin)
        what = f"request {names[request[at]]!r} has an event at {t[at]}, before it arrives"
        what += f" at {requests.arrive[request[at]]}"
        raise draft.error("backwards", name, origin[at], what, _CLOCK)
    if after:
        finish = requests.finish[request]
        late = (finish != UNKNOWN) & (t > finish)
        if late.any():
            at = first(late, origin)
            what = f"request {names[request[at]]!r} has an event at {t[at]}, after its finish at {finish[at]}"
            raise draft.error("after-finish", name, origin[at], what, "give each request an id of its own")


def emission_life(draft: Draft, table: Columns, sorted_: Emissions, emit: Ints, requests: Requests) -> None:
    """As `life` for emissions: only each request's first and last one need a look, as stamps do not fall."""
    if not len(sorted_.request):
        return
    new = np.flatnonzero(np.diff(sorted_.request)) + 1
    begin, end = np.concatenate(([0], new)), np.concatenate((new - 1, [len(sorted_.request) - 1]))
    who = sorted_.request[begin]
    head, last = emit[sorted_.step[begin]], emit[sorted_.step[end]]
    finish = requests.finish[who]
    if np.any(head < requests.arrive[who]) or np.any((finish != UNKNOWN) & (last > finish)):
        life(draft, "emits", table, "t", requests)
    admit = requests.admit[who]
    late = (requests.arrive[who] != UNKNOWN) & (admit > head)
    if late.any():
        at = int(np.argmax(late))
        row = first((table["request"] == who[at]) & (table["t"] == head[at]), table["origin"])
        what = f"request {requests.names[who[at]]!r} emits at {head[at]}, before its first admission at {admit[at]}"
        raise draft.error("backwards", "emits", table["origin"][row], what, _CLOCK)


def _other(draft: Draft, table: str, origin: int) -> str:
    """A second place in the same file, in short."""
    if origin < 0:
        return "place unknown"
    return f"line {origin}" if draft.unit == "line" else draft.place(table, int(origin)).removeprefix(draft.path + ": ")
