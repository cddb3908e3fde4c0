"""How a text report is laid out: its width, its sections, its two columns of what and how much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["WIDTH", "pairs", "section"]

WIDTH: Final = 80


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Two columns: what, and how much."""
    grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, Text(value))
    return grid


def section(title: str, *body: RenderableType) -> Iterator[RenderableType]:
    """An empty line, a title, and what belongs to it."""
    yield ""
    yield Text(title, style="bold")
    yield from (Padding(part, (0, 0, 0, 2)) for part in body)
