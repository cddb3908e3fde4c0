"""The report as text, for people: the answer in the first line, what supports it below, 80 columns at the least."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from stallbook.causes import CLEAN, MEANING
from stallbook.report import trust, words
from stallbook.report.model import Ceiling, RunReport

__all__ = ["WIDTH", "answer", "comparison", "dumps", "sections", "show"]

WIDTH = 80
BAR_WIDTH = 10
HISTOGRAM_WIDTH = 36
SETTINGS_LENGTH = 300
OWNER_WIDTH = 16
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
    """Print on stdout: on a terminal in its width and colours, anywhere else plainly at 80 columns."""
    if not sys.stdout.isatty():
        sys.stdout.write(dumps(reports, brief=brief))
        return
    console = Console(highlight=False)
    console.width = min(console.width, WIDEST)
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
    return f"{_whole(share[top])} of the tail's time is {_name(top)}; p99 {_unit(itl.p99)}, median {_unit(itl.p50)}."


def sections(report: RunReport) -> RenderableType:
    """Everything about one run."""
    return Group(*_sections(report))


def _sections(r: RunReport) -> Iterator[RenderableType]:
    yield Text(answer(r), style="bold")
    if not r.reconcile.exact:
        yield Text("These parts do not add up to the gaps: see the reconciliation below.", style="bold red")
    if r.tail.share:
        yield Text(_second(r), style="dim")
    yield ""
    yield _figures(r)
    if r.gaps:
        yield from _section(
            f"Where the tail's time went ({_tail_size(r)})",
            _tail(r),
            _tail_notes(r),
        )
        yield from _section("Gaps by length, each line split by primary cause (by count)", *_histogram(r))
    if any(r.context_ms.values()):
        yield from _section("What the engine did while requests were evicted, held or left out", _context(r))
    yield from _section("What the run did", _events(r))
    yield from _section("How far to trust this", trust.table(r))


def _second(r: RunReport) -> str:
    """What the owner of the tail is, and who comes next."""
    first, *rest = sorted(r.tail.share, key=lambda cause: -r.tail.share[cause])
    after = [f"{_name(cause)} {_whole(r.tail.share[cause])}" for cause in rest[:2] if r.tail.share[cause] >= 0.05]
    following = f"\nNext: {', '.join(after)}." if after else ""
    return f"{words.plain(first)}: {meaning(first)}.{following}"


def _section(title: str, *body: RenderableType) -> Iterator[RenderableType]:
    yield ""
    yield Text(title, style="bold")
    yield from (Padding(part, (0, 0, 0, 2)) for part in body)


def _figures(r: RunReport) -> Table:
    c, itl = r.counters, r.itl
    throughput = f"{words.rate(c.tokens_per_s)} tokens/s, {c.wall_s:,.1f} s"
    return trust.pairs(
        [
            ("gaps, ms", _named({"p50": itl.p50, "p90": itl.p90, "p99": itl.p99, "p99.9": itl.p999, "worst": itl.max})),
            ("first token, ms", _named({"p50": r.ttft.p50, "p99": r.ttft.p99})),
            ("served", f"{words.many(c.requests, 'request')}, {words.many(c.tokens, 'token')} ({throughput})"),
            ("log", words.plain(r.path) or "(in memory)"),
            ("engine", f"{words.plain(r.engine) or 'unnamed'}; {r.boundary} boundary; rules {r.rules}"),
        ]
    )


def _named(values: dict[str, float | None]) -> str:
    return "   ".join(f"{name} {words.ms(value)}" for name, value in values.items())


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
    return f"{r.tail.gaps:,} of {words.many(r.gaps, 'gap')}, {_unit(r.tail_threshold_ms)} or longer"


def _led(r: RunReport, cause: str) -> tuple[str, str]:
    """How many gaps of the tail a cause is the primary one of, and their share by count."""
    n = r.tail.primary.get(cause, 0)
    return (f"{n:,}", words.percent(n / r.tail.gaps)) if n or cause == CLEAN else ("", "")


def _tail_notes(r: RunReport) -> Text:
    quiet = [c for c in r.causes if not r.all.time_ns[c] and c not in (*r.missing, "residual")]
    lines = [
        f"The forward pass is {words.percent(r.forward_clean)} of a clean gap and "
        f"{words.percent(r.forward_tail)} of a tail gap (medians)."
    ]
    if quiet:
        lines.append(f"No time at all: {', '.join(quiet)}.")
    if r.missing:
        lines.append(f"Not recorded by this log: {', '.join(r.missing)}.")
    lines += r.warnings
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


def _context(r: RunReport) -> Text:
    told = {cause: ms for cause, ms in r.context_ms.items() if ms}
    most = sorted(told, key=lambda cause: -told[cause])
    total = sum(told.values())
    told_text = ", ".join(f"{words.plain(cause)} {words.percent(told[cause] / total)}" for cause in most)
    return Text(f"{total / 1e3:,.1f} request-seconds: {told_text}.\nThis explains waiting; it is never added to a gap.")


def _events(r: RunReport) -> Table:
    c, gc = r.counters, r.counters.collections
    rows = [
        ("preemptions", words.count(c.preemptions)),
        ("fallback (eager) steps", words.count(c.eager_steps)),
        ("largest decode batch", words.count(c.max_decode_batch)),
        ("garbage collections", _collections(gc.by_generation) if gc else words.UNKNOWN_TEXT),
    ]
    if gc:
        rows.append(("full collections, serving", _pauses(gc.gen2_serving_ms)))
        rows.append(("full collections, start-up", _pauses(gc.gen2_startup_ms)))
    if told := _settings(r.config):
        rows.append(("settings", told))
    return trust.pairs(rows)


def _settings(config: Mapping[str, Any]) -> str:
    """The settings that fit a line or two; JSON has them all."""
    told = ", ".join(f"{key} {value}" for key, value in config.items() if _short_value(value))
    return words.plain(told if len(told) <= SETTINGS_LENGTH else told[:SETTINGS_LENGTH] + "...")


def _collections(by_generation: dict[str, int]) -> str:
    return "generation " + ", ".join(f"{generation}: {n:,}" for generation, n in by_generation.items())


def _pauses(ms: list[float]) -> str:
    """The pauses themselves, the longest first where there are many."""
    shown = sorted(ms, reverse=True)[:8]
    more = f" and {len(ms) - len(shown):,} shorter" if len(ms) > len(shown) else ""
    return f"{', '.join(words.ms(one) for one in shown)} ms{more}" if ms else "none"


def _short_value(value: object) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 24)


def comparison(reports: Sequence[RunReport]) -> RenderableType:
    """Many runs side by side, a line a run. Runs are not merged: each is a sample of its own."""
    names = ("p50", "p99", "p99.9", "max", "TTFT p50", "tok/s", "tail time")
    rows = []
    for r in reports:
        times = [words.ms(v) for v in (r.itl.p50, r.itl.p99, r.itl.p999, r.itl.max, r.ttft.p50)]
        rows.append((_short(r.path), *times, words.rate(r.counters.tokens_per_s), _owners(r)))
    # Figures are never cut: what is left of the line is for the name, which folds.
    widths = [max(len(name), *(len(row[i]) for row in rows)) for i, name in enumerate(names, 1)]
    figures = sum(widths[:-1]) + min(widths[-1], OWNER_WIDTH) + 2 * len(widths)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("run", overflow="fold", max_width=max(8, WIDTH - figures))
    for name in names[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(names[-1], overflow="fold", max_width=OWNER_WIDTH)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    moved = [_short(r.path) for r in reports if r.speed and r.speed.held_still is False]
    warning = [Text(f"The machine did not hold still during {', '.join(moved)}.")] if moved else []
    return Group(Text(f"{words.many(len(reports), 'run')}; times in ms", style="bold"), table, *warning)


def _owners(r: RunReport) -> str:
    share = r.tail.share
    best = sorted(share, key=lambda cause: -share[cause])[:1]
    return ", ".join(f"{words.plain(cause)} {_whole(share[cause])}" for cause in best) if share else "no gaps"


def meaning(cause: str) -> str:
    """What a cause is, in one clause."""
    return MEANING.get(cause, f"a window that the log names {cause.removeprefix('other:')!r}")


def _short(path: str) -> str:
    return words.plain(path.rstrip("/").rsplit("/", 1)[-1]) or "(in memory)"


def _name(cause: str) -> str:
    return {"fwd": "the forward pass", "residual": "unexplained"}.get(cause, words.plain(cause))


def _whole(share: float) -> str:
    """A share in whole percent, its ends kept for exact 0 and 1."""
    return f"{share:.0%}" if 0.01 <= share <= 0.99 or share == 1 else words.percent(share)


def _unit(value: float | None) -> str:
    """A duration with its unit; seconds where ms would have five digits."""
    if value is None:
        return "-"
    return f"{value / 1e3:,.1f} s" if value >= 10_000 else f"{words.ms(value)} ms"
