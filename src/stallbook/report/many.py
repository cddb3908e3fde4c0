"""Many runs side by side, a line a run. Runs are not merged: each is a sample of its own."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stallbook.report import words
from stallbook.report.layout import WIDTH
from stallbook.report.model import RunReport

__all__ = ["comparison", "short"]

OWNER_WIDTH = 16


def comparison(reports: Sequence[RunReport]) -> RenderableType:
    """Many runs side by side, a line a run. Runs are not merged: each is a sample of its own."""
    names = ("p50", "p99", "p99.9", "max", "TTFT p50", "tok/s", "tail time")
    rows = []
    for r in reports:
        times = [words.ms(v) for v in (r.itl.p50, r.itl.p99, r.itl.p999, r.itl.max, r.ttft.p50)]
        rows.append((short(r.path), *times, words.rate(r.counters.tokens_per_s), _owners(r)))
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
    moved = [short(r.path) for r in reports if r.speed and r.speed.held_still is False]
    warning = [Text(f"The machine did not hold still during {', '.join(moved)}.")] if moved else []
    return Group(Text(f"{words.many(len(reports), 'run')}; times in ms", style="bold"), table, *warning)


def _owners(r: RunReport) -> str:
    share = r.tail.share
    best = sorted(share, key=lambda cause: -share[cause])[:1]
    return ", ".join(f"{words.plain(cause)} {words.whole(share[cause])}" for cause in best) if share else "no gaps"


def short(path: str) -> str:
    """The name of a log without its folders."""
    return words.plain(path.rstrip("/").rsplit("/", 1)[-1]) or "(in memory)"
