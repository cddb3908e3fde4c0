"""The gaps of a text report: what the tail is made of, the histogram, and what the engine did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stallbook.causes import CLEAN
from stallbook.prompts import KINDS
from stallbook.report import words
from stallbook.report.layout import pairs, section
from stallbook.report.model import Ceiling, RunReport

__all__ = ["notes", "sections"]

BAR_WIDTH = 10
HISTOGRAM_WIDTH = 36


def sections(r: RunReport) -> Iterator[RenderableType]:
    """Where the tail's time went, gaps by length."""
    yield from section(f"Where the tail's time went ({_tail_size(r)})", _tail(r), _tail_notes(r))
    yield from section("Gaps by length, each line split by primary cause (by count)", *_histogram(r))
    if any(r.context_ms.values()):
        yield from section("What the engine did while requests were evicted, held or left out", _context(r))
    if r.prompts_ms and any(r.prompts_ms["all"][kind] for kind in KINDS[1:4]):
        yield from section("Whose prompts the gaps waited for", _prompts(r.prompts_ms))
    if r.hidden_ms:
        told = f"{words.ms(r.hidden_ms)} ms in all gaps, pauses included: no token waited for it."
        yield from section("Host work behind a busy device", Text(told))


def _tail(r: RunReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("cause", no_wrap=True, overflow="ellipsis", max_width=14)
    table.add_column("tail time", width=BAR_WIDTH, no_wrap=True)
    for name in ("", "leads", "count", "of all", "p99 w/o", "p99.9 w/o"):
        table.add_column(name, justify="right", no_wrap=True)
    share, every = r.tail.share, r.all.share
    for cause in sorted(r.causes, key=lambda c: -share.get(c, 0)):
        if not r.all.time_ns[cause] and cause != "residual":
            continue
        ceiling = r.ceiling.get(cause, Ceiling(r.itl.p99, r.itl.p999))
        cells = (words.percent(every.get(cause)), words.ms(ceiling.p99), words.ms(ceiling.p999))
        of = share.get(cause, 0)
        table.add_row(Text(words.plain(cause)), words.bar(of, BAR_WIDTH), words.percent(of), *_led(r, cause), *cells)
    table.add_row(CLEAN, "", "", *_led(r, CLEAN))
    return table


def _tail_size(r: RunReport) -> str:
    return f"{r.tail.gaps:,} of {words.many(r.gaps, 'gap')}, {words.unit(r.tail_threshold_ms)} or longer"


def _led(r: RunReport, cause: str) -> tuple[str, str]:
    """How many gaps of the tail a cause is the primary one of, and their share by count."""
    n = r.tail.primary.get(cause, 0)
    return (f"{n:,}", words.percent(n / r.tail.gaps)) if n or cause == CLEAN else ("", "")


def notes(r: RunReport) -> list[str]:
    """What stands below the tail's causes: what is not in it, and why."""
    quiet = [c for c in r.causes if not r.all.time_ns[c] and c not in r.unplaced and c != "residual"]
    told = [c for c in r.abilities if c in r.unplaced and c not in r.missing and not r.all.time_ns.get(c)]
    lines = []
    if r.forward_clean is not None or r.forward_tail is not None:
        shares = {"clean": r.forward_clean, "tail": r.forward_tail}
        told_of = [f"{words.percent(share)} of a {gap} gap" for gap, share in shares.items() if share is not None]
        none = "; no gap is clean" if r.forward_clean is None else ""
        lines.append(f"The forward pass is {' and '.join(told_of)} (median{'s' * (len(told_of) > 1)}){none}.")
    if quiet:
        lines.append(f"No time at all: {', '.join(map(words.plain, quiet))}.")
    if r.missing:
        lines.append(f"Not recorded by this log: {', '.join(r.missing)}.")
    if told:
        lines.append(f"Known, but not when, so in other causes: {', '.join(map(words.plain, told))}; see the end.")
    return [*lines, *r.warnings]


def _tail_notes(r: RunReport) -> Text:
    lines = notes(r)
    lines.append("leads: gaps whose primary cause it is; count: their share of the tail's gaps.")
    lines.append("of all: its share of all gaps' time. w/o: had it cost nothing, first order.")
    return Text("\n".join(lines))


def _histogram(r: RunReport) -> Iterator[RenderableType]:
    letters = words.mark_of(r.causes)
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    filled = [i for i, one in enumerate(r.histogram) if one.gaps]
    for one in r.histogram[filled[0] : filled[-1] + 1]:
        high = f"{one.high_ms:g} ms" if one.high_ms != float("inf") else "up ms"
        table.add_row(
            f"{one.low_ms:g}-{high}", f"{one.gaps:,}", words.marks(_clean_first(one.primary), letters, HISTOGRAM_WIDTH)
        )
    yield table
    seen = [c for c in (CLEAN, *r.causes) if any(one.primary.get(c) for one in r.histogram)]
    yield Text("  ".join(f"{letters[cause]} {words.plain(cause)}" for cause in seen))


def _clean_first(counts: dict[str, int]) -> dict[str, int]:
    return {CLEAN: counts[CLEAN], **counts}


def _prompts(told: dict[str, dict[str, float]]) -> Table:
    rows = []
    for which, of in (("in all gaps", told["all"]), ("in the tail", told["tail"])):
        if total := sum(of.values()):
            rows.append((f"{words.unit(total)} {which}", words.shares({kind: ms / total for kind, ms in of.items()})))
    return pairs(rows)


def _context(r: RunReport) -> Text:
    told = {cause: ms for cause, ms in r.context_ms.items() if ms}
    most = sorted(told, key=lambda cause: -told[cause])
    total = sum(told.values())
    told_text = ", ".join(f"{words.plain(cause)} {words.percent(told[cause] / total)}" for cause in most)
    return Text(f"{total / 1e3:,.1f} request-seconds: {told_text}.\nThis explains waiting; it is never added to a gap.")
