"""A study as text, 80 columns at most, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from stallbook.predict.studies import Point, Range, Study
from stallbook.report import words
from stallbook.report.jsonout import VERSION, finite
from stallbook.report.lines import facts, grid, wrapped

__all__ = ["dumps", "shown"]

COUNTS: Final = ("preemptions", "redone")
PLAIN: Final = ("places", "load.mean", "load.busy")
SHARES: Final = ("floor",)
RATES: Final = ("tokens_per_s",)
LABEL: Final = {
    "itl.p50": "p50", "itl.p99": "p99", "itl.p99.9": "p99.9", "ttft.p50": "TTFT p50", "ttft.p99": "TTFT p99",
    "tokens_per_s": "tok/s", "away.mean": "away", "admitted.mean": "wait", "formula.wait": "formula",
    "preemptions": "preempted", "load.mean": "asked", "load.busy": "busiest",
}  # fmt: skip


def dumps(made: Study, form: str) -> str:
    """All of it, as text or as JSON."""
    if form == "json":
        return json.dumps(document(made), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return "\n".join(_lines(made)) + "\n"


def shown(name: str, value: float) -> str:
    """A figure as it is read; times are in ms."""
    if value != value:
        return "-"
    if name in COUNTS:
        return f"{value:,.0f}"
    if name in PLAIN:
        return f"{value:.1f}"
    if name in SHARES:
        return words.whole(value)
    return words.rate(value) if name in RATES else words.ms(value)


def _lines(made: Study) -> Iterator[str]:
    yield from wrapped(made.question)
    yield ""
    for one in made.found:
        yield from wrapped(one, "- ", "  ")
    yield ""
    times = "simulation" if made.draws == 1 else "simulations, the median shown"
    yield from facts([("log", words.plain(made.path)), ("points", f"each {made.draws} {times}; times in ms")])
    names = [*(p.figure for p in made.panels if not p.causes), *made.columns]
    for series in dict.fromkeys(p.series for p in made.points):
        yield ""
        yield series
        head = (made.x.partition(" (")[0], *(LABEL.get(name, name) for name in names))
        rows = [(f"{p.x:,g}", *(_cell(p, name) for name in names)) for p in made.points if p.series == series]
        yield from grid(head, rows)
    yield ""
    yield "Assumes"
    for one in made.assumes:
        yield from wrapped(one, "- ", "  ")


def _cell(point: Point, name: str) -> str:
    return shown(name, point[name])


def document(made: Study) -> dict[str, Any]:
    """The study as one JSON document."""
    return {
        "stallbook": VERSION,
        "study": {
            "name": made.name, "question": made.question, "run": made.path, "x": made.x, "draws": made.draws,
            "found": list(made.found), "assumes": list(made.assumes),
            "points": [_object(p) for p in made.points],
        },
    }  # fmt: skip


def _object(point: Point) -> dict[str, Any]:
    figures = {name: _range(r) for name, r in point.figures.items()}
    return {"series": point.series, "x": point.x, "figures": figures}


def _range(r: Range) -> dict[str, float | None]:
    return {"value": finite(r.value), "low": finite(r.low), "high": finite(r.high)}
