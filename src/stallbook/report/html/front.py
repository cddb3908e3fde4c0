"""The front of a search as a picture or a page: what each setting gives in the goal's figure, and what it costs."""

from __future__ import annotations

import html
import textwrap
from typing import Any

from stallbook.predict.knobs import written
from stallbook.predict.search import Found, Stage
from stallbook.report.html import render
from stallbook.report.html.look import PICTURE, Chart, Look, marks
from stallbook.report.predicted import Told, answer, dumps, figure_text

__all__ = ["chart", "page", "picture"]


def chart(found: Found, look: Look = PICTURE) -> Chart:
    """Each setting a point, on logarithmic scales; the front as a line, the one that was chosen and the run apart."""
    front = set(found.front)
    rows = [
        _row(found, stage, "front" if i in front else "tried") for i, stage in enumerate(found.seen) if i != found.best
    ]
    points = [row for row in rows if row is not None]
    line = [row for i in found.front if (row := _row(found, found.seen[i], "front")) is not None]
    x, y = found.goal.name, found.trade
    place: Chart = {"x": _axis("x", x), "y": _axis("y", y)}
    domain = ["tried", "front", "chosen", "recorded"]
    colours = [look.ink("line"), look.ink("accent"), "#c2410c", look.ink("ink")]
    kind = {"field": "kind", "type": "nominal", "scale": {"domain": domain, "range": colours},
            "legend": {"title": None, "orient": "top", "symbolType": "circle"}}  # fmt: skip
    named = [row for row in (_row(found, found.seen[0], "recorded"),) if row]
    if found.best is not None:
        named += [row for row in (_row(found, found.seen[found.best], "chosen"),) if row]
    limit: list[Chart] = [{"x": found.goal.limit}]
    layers = [
        marks(limit, "rule", {"x": {"field": "x", "type": "quantitative"}}, color=look.ink("soft"), strokeDash=[4, 4]),
        marks(points, "point", place | {"color": kind}, filled=True, size=36, opacity=1),
        marks(line, "line", place | {"order": {"field": "x"}}, color=look.ink("accent"), strokeWidth=1),
        marks(named, "point", place | {"color": kind}, filled=True, size=110, opacity=1),
    ]
    return {"layer": layers, "width": look.width - 90, "height": 380, "title": f"{len(found.seen)} settings, simulated"}


def _axis(field: str, name: str) -> Chart:
    unit = "" if name in ("tokens_per_s", "preemptions", "eager_steps") else ", ms"
    scale: Chart = {"type": "log"} if unit else {"zero": False}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": {"title": f"{name}{unit}", "tickCount": 6}}


def _row(found: Found, stage: Stage, kind: str) -> dict[str, Any] | None:
    x, y = stage.outcome[found.goal.name], stage.outcome[found.trade]
    return {"x": x, "y": y, "kind": kind} if x and y else None


def picture(told: Told) -> bytes:
    """The front as a PNG."""
    assert told.found is not None
    title = {
        "text": textwrap.wrap(answer(told), 84),
        "fontSize": 15,
        "subtitle": f"goal: {told.found.goal}; price: {told.found.trade}",
    }
    whole: Chart = {"vconcat": [chart(told.found)], "title": title}
    return render.png(PICTURE.finish(whole) | {"padding": 20}, 1.5)


def page(told: Told) -> str:
    """The front and the whole text as one file that asks nothing of anywhere."""
    found = told.found
    assert found is not None
    rows = "".join(
        f"<tr><td>{html.escape(written(s.change))}</td>"
        + "".join(
            f"<td>{html.escape(figure_text(n, s.outcome[n]))}</td>"
            for n in dict.fromkeys((found.goal.name, found.trade, "tokens_per_s"))
        )
        + "</tr>"
        for s in (found.seen[i] for i in found.front)
    )
    head = "".join(f"<th>{html.escape(n)}</th>" for n in dict.fromkeys((found.goal.name, found.trade, "tokens_per_s")))
    svg = render.svg(PICTURE.finish(chart(found)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>stallbook predict</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<style>body{font-family:sans-serif;max-width:860px;margin:2em auto;padding:0 1em;color:#1b1f24}"
        "table{border-collapse:collapse}td,th{padding:.3em .6em;text-align:left;border-bottom:1px solid #d5dae0}"
        "pre{overflow-x:auto}svg{max-width:100%;height:auto}</style></head>\n"
        f"<body><h1>{html.escape(answer(told))}</h1>\n{svg}\n<h2>The front</h2>\n"
        f"<table><tr><th>setting</th>{head}</tr>{rows}</table>\n<h2>In full</h2>\n"
        f"<pre>{html.escape(dumps(told, 'text'))}</pre></body></html>\n"
    )
