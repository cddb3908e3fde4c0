"""A study's charts in one picture: a panel a figure, a line a variant, each point with its least and most."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from stallbook.causes import ordered
from stallbook.predict.studies import Panel, Study
from stallbook.report import words
from stallbook.report.html import render
from stallbook.report.html.look import PICTURE, Chart, Look, by, count, marks

__all__ = ["chart", "picture"]

COLOURS: Final = ("#0b57c4", "#c2410c", "#2e7800", "#55009f", "#57606a")
HEIGHT: Final = 190
LINE: Final = 96
"""Letters in a line below the title."""


def picture(made: Study) -> bytes:
    """All panels as a PNG."""
    panels = [chart(made, panel, PICTURE) for panel in made.panels]
    own: Chart = {"scale": {"color": "independent"}}
    rows: list[Chart] = [
        {"hconcat": panels[i : i + 2], "spacing": 24, "resolve": own} for i in range(0, len(panels), 2)
    ]
    title = {
        "text": made.question, "fontSize": 16, "anchor": "start", "offset": 12, "subtitleFontSize": 12,
        "subtitle": [line for one in made.found for line in textwrap.wrap(one, LINE)],
    }  # fmt: skip
    whole: Chart = {"vconcat": rows, "spacing": 20, "title": title, "resolve": own}
    return render.png(PICTURE.finish(whole) | {"padding": 20}, 1.5)


def chart(made: Study, panel: Panel, look: Look) -> Chart:
    """One panel."""
    drawn = _causes(made, look) if panel.causes else _lines(made, panel)
    return drawn | {"width": look.width // 2 - 70, "height": HEIGHT, "title": panel.title}


def _lines(made: Study, panel: Panel) -> Chart:
    series = list(dict.fromkeys(p.series for p in made.points))
    rows = [
        {"series": p.series, "x": p.x, "y": r.value, "low": r.low, "high": r.high}
        for p in made.points
        if (r := p.figures.get(panel.figure)) is not None and (r.low > 0 or not panel.log)
    ]
    unit = f"{panel.unit} (logarithmic scale)" if panel.log else panel.unit
    scale: Chart = {"type": "log", "nice": False, "padding": 8} if panel.log else {"zero": True}
    axis = {"title": unit.strip() or None, "tickCount": 5, "format": "~s" if panel.log else ",~r"}
    x = _x(made)
    y = count("y", scale=scale, axis=axis)
    colour = by("series", scale={"domain": series, "range": list(COLOURS[: len(series)])}, legend=_legend())
    at = {"x": x, "color": colour}
    return {
        "layer": [
            marks(rows, "rule", at | {"y": count("low", scale=scale, axis=axis), "y2": {"field": "high"}}, opacity=0.5),
            marks(rows, "line", at | {"y": y}, strokeWidth=1.5),
            marks(rows, "point", at | {"y": y}, filled=True, size=30, opacity=1),
        ]
    }


def _causes(made: Study, look: Look) -> Chart:
    """Shares of all gap time along x, of the first line."""
    series = made.points[0].series
    first = [p for p in made.points if p.series == series]
    seen = ordered(name.removeprefix("share.") for p in first for name in p.figures if name.startswith("share."))
    causes = [c for c in seen if any(p[f"share.{c}"] >= 0.005 for p in first)]
    rows = []
    for p in first:
        low = 0.0
        for cause in causes:
            part = p.figures[f"share.{cause}"].value if f"share.{cause}" in p.figures else 0.0
            rows.append({"x": f"{p.x:g}", "cause": words.plain(cause), "low": low, "high": low + part})
            low += part
    order = [f"{p.x:g}" for p in first]
    x = {"field": "x", "type": "ordinal", "sort": order, "axis": {"title": made.x, "labelAngle": 0}}
    axis = {"format": "%", "title": None, "tickCount": 4, "grid": False}
    y = count("low", scale={"domain": [0, 1], "nice": False}, axis=axis)
    colour = look.of_causes(causes)
    colour["legend"] = _legend()
    return {"layer": [marks(rows, "bar", {"x": x, "y": y, "y2": {"field": "high"}, "color": colour})]}


def _x(made: Study) -> Chart:
    places = sorted({p.x for p in made.points})
    wide = places[0] > 0 and places[-1] / places[0] > 10
    scale: Chart = {"type": "log"} if wide else {"zero": False, "padding": 8}
    return count("x", scale=scale, axis={"title": made.x, "values": _ticks(places), "format": ",~r", "grid": False})


def _ticks(places: Sequence[float]) -> list[float]:
    return list(places)


def _legend() -> Chart:
    return {
        "orient": "bottom",
        "title": None,
        "columns": 2,
        "symbolType": "circle",
        "symbolOpacity": 1,
        "labelLimit": 220,
    }
