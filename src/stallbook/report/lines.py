"""Plain lines of at most 80 columns: a grid of cells, names with what they are, wrapped sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from stallbook.report.layout import WIDTH

__all__ = ["facts", "grid", "wrapped"]

GAP = "  "
LEAST_NAME = 8
"""What is left of a name at the least."""


def wrapped(sentence: str, indent: str = "", hang: str | None = None) -> list[str]:
    """A sentence in lines that fit."""
    return textwrap.wrap(
        sentence,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
        break_on_hyphens=False,
    )


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[int] = (0,)) -> list[str]:
    """A head, a rule and rows, in columns; those of `left` are flush left. A name that is too long for 80 is cut."""
    cells, flush, indent = [list(head), *map(list, rows)], set(left), GAP
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    over = len(indent) + sum(widths) + len(GAP) * (len(widths) - 1) - WIDTH
    widths[0] = min(widths[0], max(widths[0] - over, LEAST_NAME))
    lines = [indent + GAP.join(_set(row, widths, flush)).rstrip() for row in cells]
    lines.insert(1, indent + "─" * (sum(widths) + len(GAP) * (len(widths) - 1)))
    return lines


def _set(row: Sequence[str], widths: Sequence[int], flush: set[int]) -> Iterator[str]:
    for i, (text, width) in enumerate(zip(row, widths, strict=True)):
        text = text if len(text) <= width else text[: width - 1] + "…"
        yield text.ljust(width) if i in flush else text.rjust(width)


def facts(rows: Sequence[tuple[str, str]]) -> list[str]:
    """What, and what it is, in two columns."""
    width = max((len(name) for name, _ in rows), default=0) + len(GAP)
    return [line for name, text in rows for line in wrapped(text, name.ljust(width), " " * width)]
