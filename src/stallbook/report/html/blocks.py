"""What a page is made of: sections of text, tables, lists and figures. The template knows these and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from stallbook.palette import slot
from stallbook.report import words
from stallbook.report.html import render, svg
from stallbook.report.html.look import PHONE, WIDE, Chart, Look

__all__ = ["Block", "Chips", "Draw", "Figure", "Folded", "Pairs", "Section", "Table", "Text", "chips", "figure"]


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Pairs:
    """What, and how much."""

    rows: Sequence[tuple[str, str]]
    kind: ClassVar[str] = "pairs"


@dataclass(frozen=True)
class Table:
    """A table whose first `words` columns are words, all others figures. marks: a colour's slot for each row, or ''.

    folds: a cell may take two lines, so that all columns are in sight.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    marks: Sequence[str] = ()
    folds: bool = False
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Chips:
    """Colours and what they stand for. style: how a chip is drawn."""

    items: Sequence[tuple[str, str]]
    style: str = "box"
    kind: ClassVar[str] = "chips"


@dataclass(frozen=True)
class Figure:
    """A chart, drawn wide and for a phone. alt: what it shows, in words."""

    id: str
    title: str
    alt: str
    wide: str
    phone: str
    legend: Sequence[Chips] = ()
    kind: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Folded:
    """Something that opens when asked for."""

    summary: str
    blocks: Sequence[Block]
    kind: ClassVar[str] = "folded"


@dataclass(frozen=True)
class Section:
    """A heading and what belongs to it; sections may hold sections."""

    id: str
    title: str
    blocks: Sequence[Block] = field(default_factory=list)
    kind: ClassVar[str] = "section"


Block = Text | Pairs | Table | Chips | Figure | Folded | Section
Draw = Callable[[Look], Chart]


def chips(causes: Iterable[str]) -> Chips:
    """The colours of causes."""
    return Chips([(f"c-{slot(cause)}", words.plain(cause)) for cause in causes])


def figure(name: str, title: str, alt: str, draw: Draw, legend: Sequence[Chips] = ()) -> Figure:
    """Draw a chart for both widths."""
    wide, phone = (svg.inline(render.svg(look.finish(draw(look))), alt) for look in (WIDE, PHONE))
    return Figure(name, title, alt, wide, phone, legend)
