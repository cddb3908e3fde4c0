"""Windows that the core wants disjoint: pauses of a process, evictions and holds of a request. Merged and counted."""

from __future__ import annotations

import re

import numpy as np

from stallbook.log.arrays import Columns, Mask, merge, sort, take
from stallbook.log.draft import Draft
from stallbook.run import NEVER, UNKNOWN, Emissions, Evictions, Ints

__all__ = ["count_emissions", "evictions", "holds", "pauses"]

_ON_PATH = re.compile(r"engine|worker:\d+")


def pauses(draft: Draft, table: Columns, names: tuple[str, ...]) -> Columns:
    """Pauses merged per process, by start; the merged one bears the oldest generation of its parts."""
    table = sort(table, "process", "t0", "t1")
    starts = merge(table["process"], table["t0"], table["t1"])
    if starts is not None:
        draft.notes["merged_pauses"] += len(table["t0"]) - len(starts)
        table = take(table, starts) | {
            name: np.maximum.reduceat(table[name], starts) for name in ("t1", "generation")
        }  # fmt: skip
    off = np.array([_ON_PATH.fullmatch(name) is None for name in names], dtype=np.bool_)
    if len(table["t0"]):
        draft.notes["off_path_pauses"] += int(np.count_nonzero(off[table["process"]]))
    return sort(table, "t0", "t1", "process", "generation")


def holds(draft: Draft, table: Columns) -> Columns:
    """Holds merged per request and kind, by start."""
    table = sort(table, "request", "kind", "t0", "t1")
    group = table["request"] * (len(draft.names) + 1) + table["kind"]
    starts = merge(group, table["t0"], table["t1"])
    if starts is not None:
        draft.notes["merged_holds"] += len(table["t0"]) - len(starts)
        table = take(table, starts) | {"t1": np.maximum.reduceat(table["t1"], starts)}
    return sort(table, "t0", "t1", "request", "kind")


def evictions(draft: Draft, told: Columns, evicts: Columns, readmits: Columns) -> Evictions:
    """Evictions from windows (`told`) and from events, disjoint within each request."""
    table = _from_events(draft, evicts, readmits)
    fields = ("request", "t0", "t1", "recompute", "lost_tokens")
    table = {name: np.concatenate((told[name], table[name])) for name in fields}
    table = sort(table, "request", "t0", "t1", "recompute", "lost_tokens")
    starts = merge(table["request"], table["t0"], table["t1"])
    if starts is not None:
        draft.notes["merged_evictions"] += len(table["t0"]) - len(starts)
        table = _join(table, starts)
    return Evictions(**table)


def _join(table: Columns, starts: Ints) -> Columns:
    """One row of several that tell of the same eviction: the largest of each amount is what it cost."""
    amounts = ("t1", "recompute", "lost_tokens") if "t1" in table else ("recompute", "lost_tokens")
    return take(table, starts) | {name: np.maximum.reduceat(table[name], starts) for name in amounts}


def _from_events(draft: Draft, evicts: Columns, readmits: Columns) -> Columns:
    n, m = len(evicts["t"]), len(readmits["t"])
    nothing = np.full(m, -1)
    events = {
        "request": np.concatenate((evicts["request"], readmits["request"])),
        "t0": np.concatenate((evicts["t"], readmits["t"])),
        "out": np.concatenate((np.ones(n, dtype=np.int64), np.zeros(m, dtype=np.int64))),
        "recompute": np.concatenate((evicts["recompute"], nothing)),
        "lost_tokens": np.concatenate((evicts["lost_tokens"], nothing)),
    }
    events = _settle_ties(sort(events, "request", "t0", "out", "recompute", "lost_tokens"))
    out = events["out"] == 1
    same = events["request"][1:] == events["request"][:-1]
    was_out = np.zeros(n + m, dtype=np.bool_)
    was_out[1:] = same & out[:-1]
    draft.notes["stray_readmits"] += int(np.count_nonzero(~out & ~was_out))
    told_again = int(np.count_nonzero(out & was_out))
    draft.notes["merged_evictions"] += told_again
    # What stands behind each row that opens an eviction: its repetitions, then the readmission, if one comes.
    opens = np.flatnonzero(out & ~was_out)
    closes = np.flatnonzero(~out & was_out)
    end = np.full(len(opens), NEVER)
    if len(closes):
        before = np.searchsorted(closes, opens, "right")
        at = closes[np.minimum(before, len(closes) - 1)]
        ends = (before < len(closes)) & (events["request"][at] == events["request"][opens])
        end[ends] = events["t0"][at][ends]
    if told_again:
        kept = take(events, out)
        events = _join(kept, np.searchsorted(np.flatnonzero(out), opens))
    else:
        events = take(events, opens)
    del events["out"]
    return events | {"t1": end}


def _settle_ties(events: Columns) -> Columns:
    """Of an eviction and a readmission of one request at one instant, what is open closes first.

    Rows come with the readmission first, which is right wherever an eviction is open. Where none is, there is nothing
    to end yet: the eviction opens, and the readmission ends it at once. Which it is follows from the event before.
    """
    tied = (events["request"][1:] == events["request"][:-1]) & (events["t0"][1:] == events["t0"][:-1])
    mixed: Mask = tied & (events["out"][1:] != events["out"][:-1])
    if not mixed.any():
        return events
    who = np.unique(events["request"][1:][mixed])
    rows = np.arange(len(events["t0"]))
    for request in who:
        low, high = np.searchsorted(events["request"], [request, request + 1])
        rows[low:high] = low + np.array(_alternate(events["t0"][low:high].tolist(), events["out"][low:high].tolist()))
    return take(events, rows)


def _alternate(t: list[int], out: list[int]) -> list[int]:
    """The order in which one request's events (by instant, readmissions first) take effect."""
    done: list[int] = []
    is_out, i = False, 0
    while i < len(t):
        j = i
        while j < len(t) and t[j] == t[i]:
            j += 1
        evicts = [k for k in range(i, j) if out[k]]
        readmits = [k for k in range(i, j) if not out[k]]
        while evicts or readmits:
            take_readmit = readmits and (is_out or not evicts)
            done.append(readmits.pop(0) if take_readmit else evicts.pop(0))
            is_out = not take_readmit
        i = j
    return done


def count_emissions(draft: Draft, evicted: Evictions, emissions: Emissions, emit: Ints) -> None:
    """Notes of emissions while evicted: tokens that were in flight, and evictions whose end was never told."""
    if not len(evicted.t0) or not len(emissions.request):
        return
    n = len(emit)
    emitting = np.flatnonzero(emit != UNKNOWN)
    stamps = emit[emitting]
    keys = emissions.request * n + emissions.step  # ordered, as emissions are
    edge = np.append(emitting, n)
    low = edge[np.searchsorted(stamps, evicted.t0, "right")]
    high = edge[np.searchsorted(stamps, evicted.t1, "left")]
    inside = np.searchsorted(keys, evicted.request * n + high) - np.searchsorted(keys, evicted.request * n + low)
    ended = evicted.t1 != NEVER
    draft.notes["emissions_in_eviction"] += int(np.maximum(inside, 0)[ended].sum())
    draft.notes["endless_evictions"] += int(np.count_nonzero(inside[~ended] > 0))
