"""Tables as text of at most 80 columns, as Markdown and as plain data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from stallbook.digits import short
from stallbook.study.outcomes import Spread

__all__ = [
    "WIDTH",
    "Cell",
    "Table",
    "as_data",
    "as_markdown",
    "as_text",
    "count",
    "ranged",
    "wrapped",
]

WIDTH = 80
_GAP = "  "


@dataclass(frozen=True)
class Cell:
    """One entry: what it shows, the range that stands behind it, and the numbers themselves."""

    main: str
    range: str = ""
    raw: Any = None

    @property
    def line(self) -> str:
        """Both on one line."""
        return f"{self.main} {self.range}".rstrip()


@dataclass(frozen=True)
class Table:
    """A titled table; `rows` are a name and one cell a column; `notes` stand below."""

    slug: str
    title: str
    first: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    notes: tuple[str, ...] = ()
    left: frozenset[int] = frozenset()
    """Columns of words, set flush left."""


def count(value: float | None) -> str:
    """A count; a median of counts may end in a half."""
    return "-" if value is None else f"{value:g}" if value < 1e6 else f"{value:.0f}"


def ranged(values: Spread | None, show: Any = short) -> Cell:
    """``median [low-high]``; one run has no range."""
    if values is None:
        return Cell("-")
    if values.runs == 1:
        return Cell(show(values.median), raw=values)
    return Cell(show(values.median), f"[{show(values.low)}-{show(values.high)}]", values)


def as_text(table: Table) -> str:
    """The table in at most 80 columns: ranges beside the medians, or below them, or in several blocks."""
    lines = [table.title]
    for block in _blocks(table):
        lines += [row.rstrip() for row in block]
    return "\n".join([*lines, *map(wrapped, table.notes)]) + "\n"


def wrapped(sentence: str) -> str:
    """A line of text in at most 80 columns."""
    return textwrap.fill(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _blocks(table: Table) -> Iterator[list[str]]:
    every = range(len(table.columns))
    for two_lines in (False, True):
        block = _block(table, every, two_lines)
        if max(map(len, block)) <= WIDTH:
            yield block
            return
    taken: list[int] = []
    for column in every:
        if taken and max(map(len, _block(table, [*taken, column], False))) > WIDTH:
            yield _block(table, taken, False)
            taken = []
        taken.append(column)
    yield _block(table, taken, False)


def _block(table: Table, columns: Sequence[int], two_lines: bool) -> list[str]:
    grid: list[list[str]] = [[table.first, *(table.columns[c] for c in columns)]]
    for name, cells in table.rows:
        if two_lines:
            grid.append([name, *(cells[c].main for c in columns)])
            if any(cells[c].range for c in columns):
                grid.append(["", *(cells[c].range for c in columns)])
        else:
            grid.append([name, *(cells[c].line for c in columns)])
    widths = [max(len(row[i]) for row in grid) for i in range(len(columns) + 1)]
    flush_left = [True, *(c in table.left for c in columns)]
    return [
        _GAP.join(
            text.ljust(w) if left else text.rjust(w) for text, w, left in zip(row, widths, flush_left, strict=True)
        )
        for row in grid
    ]


def as_markdown(table: Table) -> str:
    """The table as a Markdown table under its title."""
    rule = ["---", *("---" if i in table.left else "---:" for i in range(len(table.columns)))]
    grid = [[table.first, *table.columns], rule, *([name, *(c.line for c in cells)] for name, cells in table.rows)]
    body = "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in grid)
    return "\n\n".join([f"**{table.title}**", body, *table.notes]) + "\n"


def as_data(table: Table) -> dict[str, Any]:
    """The table as numbers: what a cell shows where it stands for none."""
    rows = [
        {table.first: name, **{column: _raw(cell) for column, cell in zip(table.columns, cells, strict=True)}}
        for name, cells in table.rows
    ]
    return {"name": table.slug, "title": table.title, "rows": rows, "notes": list(table.notes)}


def _raw(cell: Cell) -> Any:
    raw = cell.main if cell.raw is None and cell.main != "-" else cell.raw
    if is_dataclass(raw) and not isinstance(raw, type):
        return asdict(raw)
    return None if isinstance(raw, float) and not math.isfinite(raw) else raw
