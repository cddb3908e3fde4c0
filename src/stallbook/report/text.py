"""The report as text, for people: the answer in the first line, what supports it below, 80 columns at the least."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from stallbook.causes import MEANING
from stallbook.report import beside, events, stalled, tail, trust, words
from stallbook.report.layout import WIDTH, pairs, section
from stallbook.report.many import comparison
from stallbook.report.model import RunReport

__all__ = ["answer", "dumps", "figures", "meaning", "sections", "show"]

WIDEST = 110
"""Wider lines than this are hard to read, however wide the terminal."""


def dumps(reports: Sequence[RunReport], *, brief: bool = False, width: int = WIDTH) -> str:
    """The report of one run or many as plain text."""
    told = io.StringIO()
    console = Console(file=told, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(document(reports, brief=brief))
    lines = told.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def show(reports: Sequence[RunReport], *, brief: bool = False) -> None:
    """Print on stdout: on a terminal in its width and colours, anywhere else plainly at 80 columns.

    A terminal that is narrower breaks the lines itself: a figure is never cut.
    """
    if not sys.stdout.isatty():
        sys.stdout.write(dumps(reports, brief=brief))
        return
    console = Console(highlight=False)
    console.width = max(WIDTH, min(console.width, WIDEST))
    console.print(document(reports, brief=brief))


def document(reports: Sequence[RunReport], *, brief: bool = False) -> RenderableType:
    """The whole report: many runs side by side first, then each on its own unless `brief`."""
    parts: list[RenderableType] = []
    if len(reports) > 1 or brief:
        parts.append(comparison(reports))
    if not brief:
        for report in reports:
            if len(reports) > 1:
                parts += ["", Rule(Text(words.plain(report.path), style="bold"), style="dim")]
            parts.append(sections(report))
    return Group(*parts)


def answer(report: RunReport) -> str:
    """One sentence: which cause owns the tail, and how long the tail is."""
    if not report.gaps:
        return "No gaps: no request emitted more than one token."
    share = report.tail.share
    if not share:
        return "The gaps hold no time: every one is 0 ns long."
    top = max(share, key=lambda cause: share[cause])
    itl = report.itl
    owner, long = f"{words.whole(share[top])} of the tail's time is {words.name(top)}", words.unit(itl.p99)
    return f"{owner}; p99 {long}, median {words.unit(itl.p50)}."


def sections(report: RunReport) -> RenderableType:
    """Everything about one run."""
    return Group(*_sections(report))


def _sections(r: RunReport) -> Iterator[RenderableType]:
    yield Text(answer(r), style="bold")
    if not r.exact:
        yield Text("These parts do not add up to the gaps: see the reconciliation below.", style="bold red")
    if r.tail.share:
        yield Text(_second(r), style="dim")
    yield ""
    yield pairs(figures(r))
    if r.gaps:
        yield from tail.sections(r)
        yield from stalled.worst(r)
    yield from beside.first_tokens(r)
    yield from beside.boundaries(r)
    yield from section("What the run did", events.table(r))
    yield from stalled.against_best(r)
    yield from section("How far to trust this", trust.table(r))


def _second(r: RunReport) -> str:
    """What the owner of the tail is, and who comes next."""
    first, *rest = sorted(r.tail.share, key=lambda cause: -r.tail.share[cause])
    share = r.tail.share
    after = [f"{words.name(cause)} {words.whole(share[cause])}" for cause in rest[:2] if share[cause] >= 0.05]
    following = f"\nNext: {', '.join(after)}." if after else ""
    return f"{words.plain(first)}: {meaning(first)}.{following}"


def figures(r: RunReport) -> list[tuple[str, str]]:
    """The figures that a report begins with."""
    c = r.counters
    throughput = f"{words.rate(c.tokens_per_s)} tokens/s, {c.wall_s:,.1f} s"
    return [
        ("gaps, ms", words.percentiles(r.itl.named())),
        *beside.readings(r),
        *stalled.total(r),
        ("first token, ms", words.percentiles({"p50": r.ttft.p50, "p99": r.ttft.p99})),
        ("served", f"{words.many(c.requests, 'request')}, {words.many(c.tokens, 'token')} ({throughput})"),
        ("log", (words.plain(r.path) or "(in memory)") + words.missing(r.notes)),
        ("engine", f"{words.plain(r.engine) or 'unnamed'}; {r.boundary} boundary; rules {r.rules}"),
    ]


def meaning(cause: str) -> str:
    """What a cause is, in one clause."""
    return MEANING.get(cause, f"a window that the log names {cause.removeprefix('other:')!r}")
