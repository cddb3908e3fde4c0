"""Plain lines of at most 80 columns: a grid of cells, names with what they are, wrapped sentences."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from stallbook.report.layout import WIDTH

__all__ = ["facts", "grid", "wrapped"]

GAP = "  "
LEAST_WORDS = 8
"""What a column of words keeps at the least."""


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
    """A head, a rule and rows, in columns; those of `left` hold words, flush left. Figures are never cut: where they
    leave too little of 80 columns, the widest words fold.
    """
    cells, flush = [list(head), *map(list, rows)], set(left)
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    over = len(GAP) + sum(widths) + len(GAP) * (len(widths) - 1) - WIDTH
    for _ in range(over):
        widest = max(flush, key=lambda i: widths[i])
        widths[widest] = max(widths[widest] - 1, LEAST_WORDS)
    first, *others = ([GAP + line.rstrip() for line in _folded(row, widths, flush)] for row in cells)
    rule = GAP + "─" * (sum(widths) + len(GAP) * (len(widths) - 1))
    return [*first, rule, *(line for lines in others for line in lines)]


def _folded(row: Sequence[str], widths: Sequence[int], flush: set[int]) -> Iterator[str]:
    """A row in as many lines as its longest words need."""
    folded = [
        _fold(text, width) if i in flush else [text] for i, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    for line in zip_longest(*folded, fillvalue=""):
        yield GAP.join(
            text.ljust(width) if i in flush else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )


def _fold(text: str, width: int) -> list[str]:
    """In lines of that width. A setting that holds a list may break behind each of its commas."""
    if len(text) <= width:
        return [text]
    loose = re.sub(r"\S+=\S+", lambda setting: setting[0].replace(",", ", \0"), text)
    return [line.replace(", \0", ",").lstrip("\0") for line in textwrap.wrap(loose, width, break_on_hyphens=False)]


def facts(rows: Sequence[tuple[str, str]]) -> list[str]:
    """What, and what it is, in two columns."""
    width = max((len(name) for name, _ in rows), default=0) + len(GAP)
    return [line for name, text in rows for line in wrapped(text, name.ljust(width), " " * width)]
