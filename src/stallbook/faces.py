"""How a run and a partition show themselves in a notebook: small tables, every name out of a log escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from stallbook.palette import colour

if TYPE_CHECKING:
    from stallbook.partition import Partition
    from stallbook.run import Run

__all__ = ["bar", "partition_html", "partition_line", "run_html", "run_line", "sheet"]

_CELL: Final = "padding:2px 12px 2px 0;text-align:left"
_NUMBER: Final = "padding:2px 12px 2px 0;text-align:right"


class _Markup(str):
    """Text that is markup already: nothing out of a log."""


def run_line(run: Run) -> str:
    """A run in one line."""
    return f"<Run {_where(run)}: {', '.join(f'{n} {what}' for what, n in _sizes(run)[:3])}>"


def run_html(run: Run) -> str:
    """A run as a small table: what was recorded, and how much of it."""
    rows = [
        ("engine", run.engine or "unnamed"),
        ("boundary", run.boundary),
        *_sizes(run),
        ("claims to record", ", ".join(sorted(run.records)) or "nothing"),
        ("repaired", ", ".join(f"{slug} {n:,}" for slug, n in run.notes.items()) or "nothing"),
    ]
    return sheet(f"Run {_where(run)}", ((name, text) for name, text in rows), numbers=False)


def partition_line(p: Partition) -> str:
    """A partition in one line."""
    return f"<Partition of {_where(p.run)}: {int(p.row_weight.sum()):,} gaps, rules {p.rules}, {len(p.causes)} causes>"


def partition_html(p: Partition) -> str:
    """A partition as a small table: for each cause the time that it owns, in all gaps, and the gaps that it leads."""
    weight = p.row_weight.astype(float)
    time = weight @ p.rows
    led = {k: int(p.row_weight[p.row_primary == k].sum()) for k in range(-1, len(p.causes))}
    total = float(time.sum()) or 1.0
    rows: list[tuple[str, ...]] = [("", "seconds", "of all", "leads", "", "known")]
    for k in sorted(range(len(p.causes)), key=lambda k: -time[k]):
        cause, share = p.causes[k], time[k] / total
        leads = f"{led[k]:,}" if led[k] else ""
        ability = p.abilities.get(cause, "")
        rows.append((cause, f"{time[k] / 1e9:,.3f}", f"{share:.1%}", leads, bar(cause, share), ability))
    rows.append(("clean", "", "", f"{led[-1]:,}", "", ""))
    gaps, r = int(p.row_weight.sum()), p.reconcile
    exact = f"sums {r.max_error_ns} ns off, {r.negative_parts} negative parts"
    return sheet(f"Partition of {_where(p.run)}: {gaps:,} gaps, rules {p.rules}; {exact}", rows)


def bar(cause: str, share: float) -> str:
    """A bar in the colour of a cause: markup, not text."""
    width = max(0.0, min(share, 1.0)) * 120
    return (
        f'<span style="display:inline-block;height:10px;width:{width:.0f}px;background:{colour(cause).light}"></span>'
    )


def sheet(title: str, rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """A titled table. Cells are text and are escaped, but for those that `bar` made."""
    told = "".join(
        "<tr>"
        + "".join(_cell(text, _NUMBER if numbers and 0 < i < 4 else _CELL) for i, text in enumerate(row))
        + "</tr>"
        for row in rows
    )
    head = f'<div style="font-weight:600">{escape(title)}</div>'
    return f'<div class="stallbook">{head}<table style="border-collapse:collapse">{told}</table></div>'


def _cell(text: str, style: str) -> str:
    return f'<td style="{style}">{text if isinstance(text, _Markup) else escape(text)}</td>'


def _where(run: Run) -> str:
    return run.path or "(in memory)"


def _sizes(run: Run) -> list[tuple[str, str]]:
    counts = (
        ("requests", len(run.requests.names)), ("steps", len(run.steps.id)),
        ("tokens", int(run.emissions.tokens.sum())), ("segments", len(run.segments.t0)),
        ("pauses", len(run.pauses.t0)), ("evictions", len(run.evictions.t0)),
        ("deliveries", len(run.deliveries.t)),
    )  # fmt: skip
    return [(what, f"{n:,}") for what, n in counts]
