"""One run as a page has it: every section with its words, tables and charts."""

from __future__ import annotations

from collections.abc import Iterator

from stallbook.causes import CLEAN
from stallbook.report import beside, events, trust, words
from stallbook.report.detail import Detail
from stallbook.report.html import charts, timechart
from stallbook.report.html.blocks import Block, Chips, Folded, Pairs, Section, Text, chips, figure
from stallbook.report.html.stallview import stalls
from stallbook.report.html.tables import bins, causes, collections, decodes, evictions, over_time, waits
from stallbook.report.model import RunReport
from stallbook.report.summary import Summary
from stallbook.report.tail import notes
from stallbook.report.text import figures

__all__ = ["sections", "summary"]


def summary(d: Detail) -> Iterator[Block]:
    """A run among many: what stands at the top of it, and its causes."""
    r = d.report
    yield Pairs(list(figures(r)))
    if r.gaps:
        yield causes(r)
        yield from (Text(line) for line in notes(r))


def sections(d: Detail, at: str) -> Iterator[Section]:
    """A whole run. `at` begins every name in it, so that several can stand in one page."""
    r = d.report
    yield Section(f"{at}gaps", "Gaps between tokens", [Pairs(list(figures(r))), *_histogram(r, at)])
    if r.gaps:
        yield Section(f"{at}tail", "Where the tail’s time went", list(_tail(r, at)))
        yield Section(f"{at}time", "The run over time", list(_over_time(d, at)))
        if d.stalls:
            yield Section(f"{at}stalls", "The worst stalls", list(stalls(d, at)))
    if r.first and r.first.waits.all.gaps:
        yield Section(f"{at}first", "Where the first token’s time went", list(_first(r, r.first.waits, at)))
    for name, told in r.beyond.items():
        if told.gaps.all.gaps:
            body: list[Block] = [
                Pairs([("gaps, ms", words.percentiles(told.gaps.times.named()))]),
                waits(told.gaps, "gap"),
            ]
            yield Section(f"{at}{name}", f"Gaps at the {name}", [*body, *map(Text, beside.after_and_left_out(told))])
    yield Section(f"{at}events", "Collections, preemptions, graphs", list(_events(d)))
    yield Section(f"{at}trust", "How far to trust this", list(_trust(r)))


def _histogram(r: RunReport, at: str) -> Iterator[Block]:
    if not r.gaps:
        return
    seen = [c for c in (CLEAN, *r.causes) if any(one.primary.get(c) for one in r.histogram)]
    alt = (
        f"Bar charts of {r.gaps:,} gaps by length and, of each length, by primary cause. The figures follow as a table."
    )
    yield figure(
        f"{at}histogram",
        "Gaps by length, and their primary causes",
        alt,
        lambda look: charts.histogram(r, look),
        [chips(seen)],
    )
    yield Folded("These figures as a table", [bins(r)])


def _tail(r: RunReport, at: str) -> Iterator[Block]:
    size = f"{r.tail.gaps:,} of {words.many(r.gaps, 'gap')}, {words.unit(r.tail_threshold_ms)} or longer"
    yield Text(f"The tail is the gaps at or above the p99: {size}.")
    alt = (
        f"Bar charts of the tail by cause. Of its time: {words.shares(r.tail.share)}. The table below has all figures."
    )
    yield figure(f"{at}tail-causes", "The tail by cause", alt, lambda look: charts.tail(r, look))
    yield causes(r)
    yield from (Text(line) for line in notes(r))


def _over_time(d: Detail, at: str) -> Iterator[Block]:
    r, o = d.report, d.time
    seen = sorted(o.causes, key=lambda c: -r.all.time_ns.get(c, 0))
    seen = [c for c in seen if r.all.time_ns.get(c)]
    lines = Chips(
        [(f"i-{colour}", name) for name, _, colour in timechart.LINES] + [("i-dashed", "the run’s p99")], "line"
    )
    alt = (
        "Panels over time: length of gaps, the causes of their time, decode batch, KV tokens, requests waiting, "
        "requests evicted, as far as recorded. The figures follow as a table."
    )
    yield figure(
        f"{at}over-time",
        "The run over time",
        alt,
        lambda look: timechart.over_time(o, look, r.itl.p99),
        [lines, chips(seen)],
    )
    known = {"the decode batch": o.batch, "KV tokens": o.kv_tokens, "the queue": o.queued, "evictions": o.evicted}
    if missing := [name for name, values in known.items() if values is None]:
        yield Text(f"Not recorded by this log: {', '.join(missing)}.")
    yield Folded("These figures as a table", [over_time(o)])


def _first(r: RunReport, of: Summary, at: str) -> Iterator[Block]:
    seen = sorted((c for c in of.all.time_ns if of.all.time_ns[c]), key=lambda c: -of.all.time_ns[c])
    yield Pairs([("first token, ms", words.percentiles(of.times.named()))])
    every, longest = words.shares(of.all.share), words.shares(of.tail.share)
    alt = f"Two bars. Of all time waited for first tokens: {every}. Of the longest waits: {longest}."
    yield figure(
        f"{at}first-token", "First tokens by cause", alt, lambda look: charts.first_tokens(of, look), [chips(seen)]
    )
    yield Folded("These figures as a table", [waits(of, "wait")])
    yield from map(Text, beside.waiting(r))


def _events(d: Detail) -> Iterator[Block]:
    yield Pairs(list(events.rows(d.report)))
    yield from collections(d.incidents)
    yield from evictions(d.incidents)
    yield from decodes(d.incidents)


def _trust(r: RunReport) -> Iterator[Block]:
    yield Pairs(list(trust.rows(r)))
    yield Text("What this log can show of each cause:")
    found = dict.fromkeys(r.abilities.values())
    yield Pairs([(how, ", ".join(words.plain(c) for c, a in r.abilities.items() if a == how)) for how in found])
    told = {c: ms for c, ms in r.context_ms.items() if ms}
    if total := sum(told.values()):
        shares = words.shares({c: ms / total for c, ms in told.items()}, 12)
        yield Text(
            f"What the engine did while requests were evicted, held or left out: {total / 1e3:,.1f} request-seconds: "
            f"{shares}. This explains waiting; it is never added to a gap."
        )
