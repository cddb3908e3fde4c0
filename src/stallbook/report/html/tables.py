"""The tables of a run's page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from stallbook.causes import CLEAN
from stallbook.incidents import Incidents
from stallbook.overtime import OverTime
from stallbook.palette import slot
from stallbook.report import words
from stallbook.report.html.blocks import Block, Folded, Table, Text
from stallbook.report.html.charts import in_tail
from stallbook.report.model import Ceiling, RunReport
from stallbook.report.summary import Summary

__all__ = ["bins", "causes", "collections", "decodes", "evictions", "over_time", "waits"]

SHOWN: Final = 6
"""Preemptions that are shown without being asked for."""


def causes(r: RunReport) -> Table:
    """Where the tail's time went, and what the percentiles would be without each cause."""
    head = ("cause", "tail time", "leads", "count", "of all time", "p99 without", "p99.9 without")
    rows, slots = [], []
    for cause in in_tail(r):
        ceiling = r.ceiling.get(cause, Ceiling(r.itl.p99, r.itl.p999))
        shares = words.percent(r.tail.share.get(cause)), *_led(r, cause), words.percent(r.all.share.get(cause))
        rows.append([words.plain(cause), *shares, words.ms(ceiling.p99), words.ms(ceiling.p999)])
        slots.append(slot(cause))
    rows.append([CLEAN, "", *_led(r, CLEAN), "", "", ""])
    return Table(
        "The tail by cause. Without: in ms, had it cost nothing, first order", head, rows, 1, [*slots, slot(CLEAN)]
    )


def _led(r: RunReport, cause: str) -> tuple[str, str]:
    n = r.tail.primary.get(cause, 0)
    return (f"{n:,}", words.percent(n / r.tail.gaps)) if n or cause == CLEAN else ("", "")


def bins(r: RunReport) -> Table:
    """The histogram."""
    seen = [c for c in (CLEAN, *r.causes) if any(one.primary.get(c) for one in r.histogram)]
    rows = []
    for one in r.histogram:
        if one.gaps:
            high = f"{one.high_ms:g}" if math.isfinite(one.high_ms) else "up"
            rows.append([f"{one.low_ms:g}–{high}", f"{one.gaps:,}", *(f"{one.primary.get(c, 0):,}" for c in seen)])
    return Table("Gaps by length and primary cause", ("ms", "gaps", *map(words.plain, seen)), rows)


def over_time(o: OverTime) -> Table:
    """The run over time, a row a bin in which a gap ends."""
    known = [
        (n, v)
        for n, v in (("batch", o.batch), ("KV tokens", o.kv_tokens), ("waiting", o.queued), ("evicted", o.evicted))
        if v is not None
    ]
    rows = []
    for i, n in enumerate(o.gaps.tolist()):
        if n:
            most = o.causes[int(np.argmax(o.share[i]))]
            times = [words.ms(float(v[i])) for v in (o.p50, o.p99, o.max)]
            more = ["–" if math.isnan(v[i]) else f"{v[i]:,.4g}" for _, v in known]
            rows.append(
                [
                    f"{o.edges_s[i]:.6g}",
                    f"{n:,}",
                    *times,
                    *more,
                    f"{words.plain(most)} {words.percent(float(o.share[i].max()))}",
                ]
            )
    return Table(
        "Gaps by when they end",
        ("from, s", "gaps", "p50, ms", "p99, ms", "longest, ms", *(n for n, _ in known), "most time"),
        rows,
    )


def waits(of: Summary, noun: str) -> Table:
    """Shares of time and primary causes, of all and of the tail."""
    order = sorted((c for c in of.all.time_ns if of.all.time_ns[c]), key=lambda c: -of.all.time_ns[c])
    tail = of.tail.gaps < of.all.gaps
    rows = []
    for cause in order:
        row = [words.plain(cause), words.percent(of.all.share[cause]), f"{of.all.primary.get(cause, 0):,}"]
        rows.append(
            [*row, *([words.percent(of.tail.share.get(cause)), f"{of.tail.primary.get(cause, 0):,}"] if tail else [])]
        )
    longest = f"the {of.tail.gaps:,} longest: time", "led by it"
    head = ("cause", f"all {words.many(of.all.gaps, noun)}: time", "led by it", *(longest if tail else ()))
    return Table(f"{noun.capitalize()}s by cause", head, rows, 1, [slot(c) for c in order])


def collections(found: Incidents) -> Iterator[Block]:
    """Garbage collections: totals, and the longest."""
    if found.collected is None:
        yield Text("Garbage collections: not recorded.")
        return
    if not found.collected:
        yield Text("No garbage collection is on record.")
        return
    rows = [
        [
            words.plain(c.process),
            _generation(c.generation),
            f"{c.count:,}",
            words.ms(c.total_ms),
            words.ms(c.longest_ms),
        ]
        for c in found.collected
    ]
    yield Table("Garbage collections", ("process", "generation", "count", "in all, ms", "longest, ms"), rows, 2)
    rows = [
        [words.plain(c.process), _generation(c.generation), f"{c.start_s:,.3f}", words.ms(c.length_ms)]
        for c in found.collections
    ]
    yield Folded(
        "The longest one by one", [Table("The longest collections", ("process", "generation", "at, s", "ms"), rows, 2)]
    )


def _generation(generation: int) -> str:
    return str(generation) if generation >= 0 else "not recorded"


def evictions(found: Incidents) -> Iterator[Block]:
    """Preemptions: the longest."""
    if found.evictions is None:
        yield Text("Preemptions: not recorded.")
        return
    if not found.evictions:
        yield Text("No preemption is on record.")
        return
    rows = []
    for e in found.evictions:
        away = words.ms(e.away_ms) if e.away_ms is not None else "never came back"
        lost = f"{e.lost_tokens:,}" if e.lost_tokens is not None else "not recorded"
        rows.append([words.plain(e.request), e.kind, f"{e.start_s:,.3f}", away, lost])
    head = ("request", "its cache", "at, s", "away, ms", "tokens lost")
    yield Table(f"Preemptions, the longest of {found.evicted:,}", head, rows[:SHOWN], 2)
    if rows[SHOWN:]:
        yield Folded("The next ones", [Table("Further preemptions", head, rows[SHOWN:], 2)])


def decodes(found: Incidents) -> Iterator[Block]:
    """What decode steps took, by graph path, and by size."""
    if not found.paths:
        return
    rows = []
    for path in found.paths:
        ratio = f"{path.ratio:.2f}" if path.ratio else "–"
        rows.append([path.path, f"{path.steps:,}", f"{path.rows[0]:,}–{path.rows[1]:,}", words.ms(path.took_ms), ratio])
    head: tuple[str, ...] = ("path", "steps", "rows", "in all, ms", "took / should take")
    yield Table("Decode steps by graph path", head, rows)
    rows = []
    for s in found.sizes:
        over = f"{s.took_ms / s.expected_ms:.2f}" if s.expected_ms else "–"
        rows.append([s.path, f"{s.size:,}", f"{s.steps:,}", words.ms(s.took_ms), words.ms(s.expected_ms), over])
    head = ("path", "rows", "steps", "took, ms", "should take, ms", "ratio")
    table = Table("Decode steps by graph path and size: medians", head, rows)
    yield Folded("By size", [table])
