"""How charts look: wide or for a phone, with the colours of the page they stand in or with their own.

Charts are written as Vega-Lite, which vl-convert draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stallbook.palette import GROUND, colour, slot
from stallbook.report import words

__all__ = ["INK", "PHONE", "PICTURE", "TIP", "WIDE", "Chart", "Look", "by", "count", "marks", "tip"]

Chart = dict[str, Any]

TIP: Final = "tip:"
"""Begins the text of a mark that a reader is told when pointing at it."""

INK: Final = {
    "ink": ("#1b1f24", "#e8eaed"),
    "soft": ("#57606a", "#a9b1ba"),
    "line": ("#d5dae0", "#333a43"),
    "band": ("#eef1f4", "#20262d"),
    "ground": (GROUND.light, GROUND.dark),
    "accent": ("#0b57c4", "#7db8ff"),
}
"""The colours that are no cause's, on a light ground and on a dark one."""


@dataclass(frozen=True)
class Look:
    """width: of the whole chart, pixels. themed: colours are the page's CSS variables, which follow its theme."""

    width: int
    narrow: bool = False
    themed: bool = True

    def cause(self, cause: str) -> str:
        """The colour of a cause."""
        return f"var(--c-{slot(cause)})" if self.themed else colour(cause).light

    def ink(self, name: str) -> str:
        """One of `INK`."""
        return f"var(--{name})" if self.themed else INK[name][0]

    def of_causes(self, causes: Iterable[str], *, legend: bool = True) -> Chart:
        """Each cause in its colour; a legend only where the page gives none."""
        names = list(causes)
        scale = {"domain": [words.plain(c) for c in names], "range": [self.cause(c) for c in names]}
        shown = {"orient": "top", "title": None, "columns": 9} if legend and not self.themed else None
        return {"field": "cause", "type": "nominal", "scale": scale, "legend": shown}

    def finish(self, chart: Chart) -> Chart:
        """The chart with everything that all of them share."""
        ink, soft, line, size = self.ink("ink"), self.ink("soft"), self.ink("line"), 11 if self.narrow else 12
        config = {
            "view": {"stroke": None},
            "font": "sans-serif",
            "axis": {
                "labelColor": soft, "titleColor": soft, "gridColor": line, "domainColor": line, "tickColor": line,
                "labelFontSize": size, "titleFontSize": size, "titleFontWeight": "normal", "labelOverlap": False,
            },
            "title": {"color": ink, "fontSize": size + 1, "anchor": "start", "frame": "group", "offset": 6},
            "legend": {"labelColor": ink, "labelFontSize": size, "symbolType": "square", "symbolStrokeWidth": 0},
            "text": {"color": ink, "fontSize": size},
        }  # fmt: skip
        padding = {"left": 2, "right": 8, "top": 4, "bottom": 4}
        ground = None if self.themed else INK["ground"][0]
        return chart | {"background": ground, "padding": padding, "config": config}


WIDE: Final = Look(720)
PHONE: Final = Look(340, narrow=True)
PICTURE: Final = Look(760, themed=False)


def marks(rows: Sequence[Chart], mark: str, encoding: Chart, **how: Any) -> Chart:
    """A mark a row, which travels inside the chart."""
    return {"data": {"values": list(rows)}, "mark": {"type": mark, **how}, "encoding": encoding}


def count(field: str, **how: Any) -> Chart:
    """A field of numbers."""
    return {"field": field, "type": "quantitative", **how}


def by(field: str, **how: Any) -> Chart:
    """A field of names."""
    return {"field": field, "type": "nominal", **how}


def tip(text: str) -> str:
    """What a mark says of itself."""
    return TIP + text
