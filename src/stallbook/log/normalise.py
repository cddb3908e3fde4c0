"""From a `Draft` to a canonical `Run`: sorted, merged, joined, counted, and checked on the way.

Canonical also means independent of the order in which things were told: requests are ordered by arrival and name
(those whose arrival is not known first), names by spelling. Several emissions of one request in one step are one, their
tokens added.
"""

from __future__ import annotations

import numpy as np

from stallbook.errors import StallbookError
from stallbook.log import check, windows
from stallbook.log.arrays import Columns, group_starts, order, sort, stable_order, take
from stallbook.log.draft import TABLES, Draft
from stallbook.log.mend import mended
from stallbook.run import (
    UNKNOWN,
    Deliveries,
    Emissions,
    Holds,
    Ints,
    Members,
    Pauses,
    Probes,
    Requests,
    Run,
    Segments,
    Steps,
)  # fmt: skip

__all__ = ["build"]


def build(draft: Draft) -> Run:
    """The canonical run of a draft; raises `StallbookError` where it contradicts itself, unless forgiven."""
    notes = draft.notes.copy()
    try:
        return _build(draft, {name: draft.table(name) for name in TABLES})
    except StallbookError:
        if not draft.forgiving:
            raise
    draft.notes = notes
    return _build(draft, mended(draft))


def _build(draft: Draft, raw: dict[str, Columns]) -> Run:
    for name, table in raw.items():
        check.ranges(draft, name, table)
    requests = _requests(draft, raw)
    names = _rename(draft, raw)
    steps = _steps(draft, raw["steps"])
    emitted = _drop_empty(draft, raw["emits"], "empty_emissions")
    emissions, steps = _emissions(draft, emitted, steps, len(requests.names))
    check.emission_life(draft, emitted, emissions, steps.emit, requests)
    paused = windows.pauses(draft, raw["pauses"], names)
    if "engine" in names:
        own = take(paused, paused["process"] == names.index("engine"))
        check.emission_in_pause(draft, emitted, own, steps.emit)
    for name in ("admits", "evicts", "readmits"):
        check.life(draft, name, raw[name], "t", requests)
    check.life(draft, "evictions", raw["evictions"], "t0", requests)
    check.life(draft, "holds", raw["holds"], "t0", requests)
    evicted = windows.evictions(draft, raw["evictions"], raw["evicts"], raw["readmits"])
    windows.count_emissions(draft, evicted, emissions, steps.emit)
    return Run(
        requests=requests,
        steps=steps,
        segments=_segments(draft, raw["segments"], steps, names),
        pauses=Pauses(**_only(paused, "pauses")),
        emissions=emissions,
        evictions=evicted,
        holds=Holds(**_only(windows.holds(draft, raw["holds"]), "holds")),
        deliveries=_deliveries(draft, raw["deliveries"], requests),
        members=_members(draft, raw["members"], raw["members_known"], steps),
        probes=Probes(**_only(sort(raw["probes"], "t", "ns"), "probes")),
        names=names,
        engine=draft.engine,
        boundary=draft.boundary,
        records=frozenset(draft.records),
        config=check.settings(draft.config),
        baseline=draft.baseline,
        path=draft.path,
        wall_ns=draft.wall_ns,
        preemptions=draft.preemptions,
        notes={slug: count for slug, count in sorted(draft.notes.items()) if count},
        facts=check.settings(draft.facts),
    )


def _only(table: Columns, name: str) -> Columns:
    """The columns that a table of the run shares with its raw form, writable and contiguous."""
    return {column: np.ascontiguousarray(table[column]) for column in TABLES[name]}


def _requests(draft: Draft, raw: dict[str, Columns]) -> Requests:
    """The table of requests; in `raw`, every request index becomes a row of it."""
    check.lives(draft, raw["arrivals"], raw["finishes"])
    names = draft.request_names
    arrive, admit, finish = (np.full(len(names), UNKNOWN) for _ in range(3))
    prompt, limit = (np.full(len(names), -1) for _ in range(2))
    came, admits, went = raw["arrivals"], raw["admits"], raw["finishes"]
    arrive[came["request"]] = came["t"]
    prompt[came["request"]], limit[came["request"]] = came["prompt_tokens"], came["max_tokens"]
    finish[went["request"]] = went["t"]
    firsts = take(admits, np.lexsort((-admits["t"],)))  # the last one assigned is the earliest
    admit[firsts["request"]] = firsts["t"]
    rows = np.array(sorted(range(len(names)), key=lambda i: (arrive[i], names[i])), dtype=np.int64)
    requests = Requests(
        tuple(names[i] for i in rows), arrive[rows], admit[rows], finish[rows], prompt[rows], limit[rows]
    )
    _replace(raw, ("request", "owner"), rows)
    check.life(draft, "arrivals", take(came := raw["arrivals"], came["t"] != UNKNOWN), "t", requests)
    return requests


def _rename(draft: Draft, raw: dict[str, Columns]) -> tuple[str, ...]:
    """The names in use, by spelling; in `raw`, every name index becomes an index into them."""
    names = draft.names
    used = {
        int(i) for t, c in (("segments", "name"), ("pauses", "process"), ("holds", "kind")) for i in _set(raw[t][c])
    }
    rows = np.array(sorted(used, key=names.__getitem__), dtype=np.int64)
    _replace(raw, ("name",), rows, len(names))
    return tuple(names[i] for i in rows)


def _set(column: Ints) -> Ints:
    return np.flatnonzero(np.bincount(column)) if len(column) else column


def _replace(raw: dict[str, Columns], kinds: tuple[str, ...], rows: Ints, size: int | None = None) -> None:
    """Rewrites indices so that old index `rows[i]` becomes i; -1 stays."""
    if np.array_equal(rows, np.arange(len(rows) if size is None else size)):
        return
    new = np.full((len(rows) if size is None else size) + 1, -1)
    new[rows] = np.arange(len(rows))
    for name, spec in TABLES.items():
        for column, kind in spec.items():
            if kind.kind in kinds:
                raw[name][column] = new[raw[name][column]]


def _steps(draft: Draft, table: Columns) -> Steps:
    table = take(table, order(table["id"], table["origin"]))
    check.steps(draft, table)
    return Steps(**_only(table, "steps"), emit=np.full(len(table["id"]), UNKNOWN))


def _drop_empty(draft: Draft, table: Columns, note: str) -> Columns:
    keep = table["tokens"] > 0
    if keep.all():
        return table
    draft.notes[note] += int(np.count_nonzero(~keep))
    return take(table, keep)


def _emissions(draft: Draft, table: Columns, steps: Steps, n_requests: int) -> tuple[Emissions, Steps]:
    rows = check.known_steps(draft, "emits", table, steps.id)
    steps.emit[rows] = table["t"]
    check.emissions(draft, table, rows, steps)
    request, tokens = table["request"], table["tokens"]
    by = order(rows)
    if by is not None:
        request, rows, tokens = request[by], rows[by], tokens[by]
    by = stable_order(request, n_requests)
    request, rows, tokens = request[by], rows[by], tokens[by]
    same = (request[1:] == request[:-1]) & (rows[1:] == rows[:-1])
    if same.any():
        draft.notes["joined_emissions"] += int(np.count_nonzero(same))
        starts = np.flatnonzero(np.concatenate(([True], ~same)))
        request, rows, tokens = request[starts], rows[starts], np.add.reduceat(tokens, starts)
    return Emissions(request, rows, tokens), steps


def _segments(draft: Draft, table: Columns, steps: Steps, names: tuple[str, ...]) -> Segments:
    rows = check.known_steps(draft, "segments", table, steps.id)
    check.segments(draft, table, rows, steps, names)
    table = table | {"step": rows}
    by = order(table["t0"], -table["t1"], *(table[k] for k in ("step", "device", "name", "run_delay", "request")))
    return Segments(**_only(take(table, by), "segments"))


def _deliveries(draft: Draft, table: Columns, requests: Requests) -> Deliveries:
    check.life(draft, "deliveries", table, "t", requests, after=False)
    table = _drop_empty(draft, table, "empty_deliveries")
    return Deliveries(**_only(sort(table, "request", "boundary", "t", "tokens"), "deliveries"))


def _members(draft: Draft, table: Columns, known: Columns, steps: Steps) -> Members:
    n = len(steps.id)
    flags = np.zeros(n, dtype=np.int64)
    flags[check.known_steps(draft, "members_known", known, steps.id)] = 1
    rows = check.known_steps(draft, "members", table, steps.id)
    flags[rows] = 1
    request = table["request"]
    by = order(rows, request)
    if by is not None:
        rows, request = rows[by], request[by]
    starts = group_starts(rows, request)
    if len(starts) < len(rows):
        draft.notes["repeated_members"] += len(rows) - len(starts)
        rows, request = rows[starts], request[starts]
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n), out=start[1:])
    return Members(flags, start, np.ascontiguousarray(request))
