"""The report as one picture, for chats and tickets."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from stallbook.report.detail import Detail
from stallbook.report.headline import headline, support
from stallbook.report.html import charts, render, rungs, timechart
from stallbook.report.html.look import PICTURE, Chart
from stallbook.report.many import short

__all__ = ["picture"]

LINE = 72
"""Letters in a line of the title."""


def picture(details: Sequence[Detail]) -> bytes:
    """A PNG of one run: its answer, histogram, tail and time; or of several: side by side."""
    parts = _one(details[0]) if len(details) == 1 else rungs.drawn([d.report for d in details], PICTURE)
    title = headline(details[0].report) if len(details) == 1 else rungs.headline_of_many([d.report for d in details])
    below = [*support(details[0].report), short(details[0].report.path)] if len(details) == 1 else []
    heading = {
        "text": textwrap.wrap(title, LINE),
        "subtitle": [line for text in below for line in textwrap.wrap(text, LINE + 30)],
        "fontSize": 18,
        "subtitleFontSize": 13,
        "subtitleColor": PICTURE.ink("soft"),
        "offset": 14,
        "frame": "bounds",
    }
    whole = {
        "vconcat": parts,
        "spacing": 22,
        "title": heading,
        "resolve": {"scale": {"color": "independent", "x": "independent"}},
    }
    return render.png(PICTURE.finish(whole) | {"padding": 20}, 1.5)


def _one(d: Detail) -> list[Chart]:
    if not d.report.gaps:
        return [{"data": {"values": [{}]}, "mark": "point", "width": PICTURE.width, "height": 1}]
    parts = [charts.histogram(d.report, PICTURE), charts.tail(d.report, PICTURE)]
    return [*parts, {"vconcat": timechart.panels(d.time, PICTURE, d.report.itl.p99), "spacing": 12}]
