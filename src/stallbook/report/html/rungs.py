"""Several runs side by side: the runs of one rung together. Runs are not merged: each is a sample of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from stallbook import digits
from stallbook.causes import ordered
from stallbook.report import words
from stallbook.report.headline import owner
from stallbook.report.html.blocks import Block, Chips, Folded, Table, Text, chips, figure
from stallbook.report.html.charts import stacked
from stallbook.report.html.look import Chart, Look, by, count, marks, tip
from stallbook.report.many import short
from stallbook.report.model import RunReport

__all__ = ["blocks", "compared", "drawn", "group_of", "groups", "headline_of_many"]

Groups = dict[str, list[RunReport]]

_SEED: Final = re.compile(r"__s\d+$")
TIMES: Final = (("p50", "soft", "circle"), ("p99", "accent", "diamond"), ("p99.9", "ink", "triangle-up"))
TO: Final = "\u2060–\u2060"
"""Between the ends of a range, which stays on one line."""
ROW: Final = 34
RUN: Final = 15
NAME: Final = 22


def group_of(r: RunReport) -> str:
    """What a run is one of: its file's name without the number of its seed."""
    return _SEED.sub("", re.sub(r"\.(stall|npz|jsonl|jsonl\.gz)$", "", short(r.path)))


def groups(reports: Sequence[RunReport]) -> Groups:
    """The runs by what they are one of, in the order in which they came."""
    out: Groups = {}
    for r in reports:
        out.setdefault(group_of(r), []).append(r)
    return out


def headline_of_many(reports: Sequence[RunReport]) -> str:
    """What became of the long gaps from the first row to the last."""
    of = groups([r for r in reports if r.gaps])
    if not of:
        return "No gaps in any run."
    first, last = next(iter(of)), list(of)[-1]
    told = []
    for name, key in (("p99", "p99"), ("p99.9", "p999")):
        a, b = ([v for r in of[k] if (v := getattr(r.itl, key)) is not None] for k in (first, last))
        told.append(f"{name} {words.unit(median(a))}" + ("" if first == last else f" → {words.unit(median(b))}"))
    where = f"{words.many(len(reports), 'run')} of {first}" if first == last else f"{first} → {last}"
    return f"{where}: {', '.join(told)}" + (", medians." if len(reports) > len(of) else ".")


def blocks(reports: Sequence[RunReport]) -> Iterator[Block]:
    """All runs side by side."""
    of = groups(reports)
    many = len(of) < len(reports)
    what = "Each point is a run, each bar the median of its row." if many else "Each point is a run."
    yield Text(f"{words.many(len(reports), 'run')}. {what} Runs are not merged: a run is one sample.")
    measured = [r for r in reports if r.gaps]
    if measured:
        yield figure(
            "rungs-itl",
            "Gaps between tokens",
            _alt(of, "Gaps"),
            lambda look: _points(of, look, ttft=False),
            [_key(TIMES)],
        )
        seen = ordered(c for r in measured for c, share in r.tail.share.items() if share >= 0.001)
        alt = "A bar a run: the shares of its tail's time by cause. The table below names the largest of each."
        yield figure("rungs-tail", "Where the tail’s time went", alt, lambda look: _tails(of, look), [chips(seen)])
    if any(r.ttft.p50 for r in reports):
        alt = _alt(of, "First tokens")
        yield figure("rungs-ttft", "First tokens", alt, lambda look: _points(of, look, ttft=True), [_key(TIMES[:2])])
    yield compared(of)
    if many:
        yield Folded("Every run", [_runs(reports)])
    if moved := [short(r.path) for r in reports if r.speed and r.speed.held_still is False]:
        yield Text(f"The machine did not hold still during {', '.join(moved)}.")


def drawn(reports: Sequence[RunReport], look: Look) -> list[Chart]:
    """The charts of several runs, for a picture."""
    of = groups([r for r in reports if r.gaps])
    if not of:
        return []
    charts = {"Gaps between tokens": _points(of, look, ttft=False), "Where the tail’s time went": _tails(of, look)}
    if any(r.ttft.p50 for runs in of.values() for r in runs):
        charts["First tokens"] = _points(of, look, ttft=True)
    return [chart | {"title": title} for title, chart in charts.items()]


def _key(times: Sequence[tuple[str, str, str]]) -> Chips:
    return Chips([(f"i-{colour}", name) for name, colour, _ in times], "dot")


def _alt(of: Groups, what: str) -> str:
    rows = words.many(len(of), "row")
    return f"{what} in ms of {rows}, a point a run, on a logarithmic scale. The table below has the figures."


def _values(r: RunReport, *, ttft: bool) -> dict[str, float | None]:
    return {"p50": r.ttft.p50, "p99": r.ttft.p99} if ttft else {"p50": r.itl.p50, "p99": r.itl.p99, "p99.9": r.itl.p999}


def _points(of: Groups, look: Look, *, ttft: bool) -> Chart:
    rows, bars = [], []
    times = TIMES[:2] if ttft else TIMES
    for name, runs in of.items():
        told = [(short(r.path), _values(r, ttft=ttft)) for r in runs]
        for key, *_ in times:
            values = [(path, v) for path, of_run in told if (v := of_run.get(key))]
            rows += [
                {"row": name, "v": v, "what": key, "tip": tip(f"{path}: {key} {words.unit(v)}")} for path, v in values
            ]
            if len(values) > 1:
                bars.append({"row": name, "v": median(v for _, v in values), "what": key})
    names = list(of)
    scale = {"domain": [t[0] for t in times], "range": [look.ink(t[1]) for t in times]}
    colour = by("what", scale=scale, legend=None if look.themed else {"orient": "top", "title": None})
    shape = by("what", scale={"domain": [t[0] for t in times], "range": [t[2] for t in times]}, legend=None)
    axis = {"title": "ms (logarithmic scale)", "grid": True, "format": "~s" if look.narrow else ",~r", "tickCount": 5}
    x = count("v", scale={"type": "log", "nice": False, "padding": 12}, axis=axis)
    y = by("row", sort=names, scale={"domain": names}, axis=_rows_axis(look))
    point = marks(
        rows, "point", {"x": x, "y": y, "color": colour, "shape": shape, "description": by("tip")},
        filled=True, size=42, opacity=0.75,
    )  # fmt: skip
    tick = marks(bars, "tick", {"x": x, "y": y, "color": colour}, thickness=2, size=ROW * 0.62)
    return {"layer": [tick, point], "width": look.width - _room(look) - 16, "height": ROW * len(names)}


def _room(look: Look) -> int:
    return 112 if look.narrow else 130


def _rows_axis(look: Look) -> Chart:
    return {"title": None, "ticks": False, "domain": False, "labelLimit": _room(look) - 6, "minExtent": _room(look)}


def _tails(of: Groups, look: Look) -> Chart:
    """A bar a run, under the name of its rung."""
    rows: list[Chart] = []
    labels: list[Chart] = []
    top = 0
    for name, runs in of.items():
        top += NAME
        labels.append({"y": top - 3, "text": name})
        for r in runs:
            order = sorted(ordered(r.tail.share), key=lambda c: c in ("fwd", "pad", "residual"))
            for cause, low, high, text in stacked(r.tail.share, order, short(r.path), ""):
                at = {"a": round(low, 5), "b": round(high, 5), "y": top + 1, "z": top + RUN - 1}
                rows.append(at | {"cause": words.plain(cause), "tip": tip(text)})
            top += RUN
    seen = ordered(c for runs in of.values() for r in runs for c, n in r.tail.share.items() if n)
    y = count("y", scale={"domain": [top, 0], "nice": False}, axis=None)
    axis = {"format": "%", "title": None, "grid": False, "tickCount": 4}
    x = count("a", scale={"domain": [0, 1], "nice": False}, axis=axis)
    box = {"x": x, "x2": {"field": "b"}, "y": y, "y2": {"field": "z"}, "color": look.of_causes(seen)}
    label: Chart = {"x": {"value": 0}, "y": y, "text": by("text")}
    named = marks(labels, "text", label, align="left", baseline="bottom", limit=look.width)
    return {
        "layer": [marks(rows, "rect", box | {"description": by("tip")}), named],
        "width": look.width - 16,
        "height": top,
    }


def _ranged(values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "–"
    middle = digits.short(median(known))
    return middle if len(known) == 1 else f"{middle} [{digits.short(min(known))}{TO}{digits.short(max(known))}]"


def compared(of: Groups) -> Table:
    """A line a rung: medians, and the least and the most of its runs."""
    rows = []
    for name, runs in of.items():
        times = [[getattr(r.itl, k) for r in runs] for k in ("p50", "p99", "p999", "max")]
        first = [[r.ttft.p50 for r in runs], [r.ttft.p99 for r in runs]]
        speed = _ranged([r.counters.tokens_per_s for r in runs])
        rows.append([name, f"{len(runs)}", *map(_ranged, times), *map(_ranged, first), speed, _owners(runs)])
    head = ("rung", "runs", "p50", "p99", "p99.9", "worst", "TTFT p50", "TTFT p99", "tokens/s", "owns the tail")
    return Table("Medians, and the least and the most of the runs; times in ms", head, rows, folds=True)


def _owners(runs: Sequence[RunReport]) -> str:
    """The causes that hold most of the tail's time, the one of the most runs first."""
    own = [words.plain(o) for r in runs if (o := owner(r))]
    names = sorted(set(own), key=lambda c: (-own.count(c), c))
    return ", ".join(f"{c} in {own.count(c)}" if len(runs) > 1 else c for c in names) or "–"


def _runs(reports: Sequence[RunReport]) -> Table:
    rows = []
    for r in reports:
        times = [words.ms(v) for v in (r.itl.p50, r.itl.p99, r.itl.p999, r.itl.max, r.ttft.p50, r.ttft.p99)]
        top = owner(r)
        owned = f"{words.plain(top)} {words.whole(r.tail.share[top])}" if top else "–"
        rows.append([short(r.path), *times, words.rate(r.counters.tokens_per_s), owned])
    head = ("run", "p50", "p99", "p99.9", "worst", "TTFT p50", "TTFT p99", "tokens/s", "owns the tail")
    return Table("Every run; times in ms", head, rows)
