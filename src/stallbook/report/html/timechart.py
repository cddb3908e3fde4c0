"""The run over time: panels one above the other, each a value a bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from stallbook.overtime import OverTime
from stallbook.report import words
from stallbook.report.html.look import Chart, Look, by, count, marks, tip

__all__ = ["LINES", "over_time", "panels"]

LINES: Final = (("longest", "max", "ink"), ("p99", "p99", "accent"), ("p50", "p50", "soft"))
"""Of the first panel: what each line is, its field, its colour."""
LEFT: Final = 46
AXIS: Final = {"title": None, "minExtent": LEFT - 8, "maxExtent": LEFT - 8, "domain": False}


def over_time(o: OverTime, look: Look, p99: float | None) -> Chart:
    """Percentiles, causes, batch, KV tokens and queue over time."""
    return {"vconcat": panels(o, look, p99), "spacing": 16, "resolve": {"scale": {"color": "independent"}}}


def panels(o: OverTime, look: Look, p99: float | None) -> list[Chart]:
    """The panels of what the log knows."""
    counted = [
        ("Requests decoding in a step, mean", o.batch),
        ("KV tokens attended in a step, mean", o.kv_tokens),
        ("Requests waiting for admission, mean", o.queued),
        ("Requests evicted, mean", o.evicted),
    ]
    known = [(title, values) for title, values in counted if values is not None and np.nansum(values) > 0]
    return [
        _lengths(o, look, p99),
        _causes(o, look, last=not known),
        *(_values(o, values, look, title, last=i == len(known) - 1) for i, (title, values) in enumerate(known)),
    ]


def _x(o: OverTime, *, last: bool = False) -> Chart:
    axis = {"tickCount": 6, "grid": False, "title": "s since the run began" if last else None}
    hidden = {} if last else {"labels": False, "ticks": False}
    return count("t", axis=axis | hidden, scale={"domain": [0, float(o.edges_s[-1])], "nice": False})


def _panel(layers: list[Chart], look: Look, height: int, title: str) -> Chart:
    return {"layer": layers, "width": look.width - LEFT - 12, "height": height, "title": title}


def _held(o: OverTime, values: Any) -> list[Chart]:
    """A row a bin edge, so that each value holds for its whole bin."""
    told = [None if math.isnan(v) else round(v, 4) for v in values.tolist()]
    return [{"t": _short(t), "v": v} for t, v in zip(o.edges_s.tolist(), [*told, told[-1]], strict=True)]


def _short(seconds: float) -> float:
    return float(f"{seconds:.6g}")


def _touched(o: OverTime, look: Look, said: Sequence[str]) -> list[Chart]:
    """What the reader is told who points at a bin. A finger is wider than a bin, so not on a phone."""
    if look.narrow:
        return []
    edges = [f"{t:.4g}" for t in o.edges_s.tolist()]
    rows = [
        {
            "t": _short(float(o.edges_s[i])),
            "u": _short(float(o.edges_s[i + 1])),
            "tip": tip(f"{edges[i]}–{edges[i + 1]} s: {text}"),
        }
        for i, text in enumerate(said)
        if text
    ]
    return [
        marks(
            rows,
            "rect",
            {"x": count("t"), "x2": {"field": "u"}, "description": by("tip")},
            opacity=0,
            color=look.ink("ground"),
        )
    ]


def _lengths(o: OverTime, look: Look, p99: float | None) -> Chart:
    known = np.concatenate([o.p50, o.max])
    known = known[known > 0]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.1, 1.0)
    scale = {"type": "log", "domain": [low / 1.2, high * 1.2], "nice": False}
    y = count("v", scale=scale, axis=AXIS | {"values": _ticks(low, high), "format": "~g"})
    layers = []
    for _, field, colour in LINES:
        rows = [row | {"v": row["v"] or None} for row in _held(o, getattr(o, field))]
        line = {"interpolate": "step-after", "color": look.ink(colour), "strokeWidth": 1 if field == "max" else 1.6}
        layers.append(marks(rows, "line", {"x": _x(o), "y": y}, **line))
    if p99:
        rule = {"strokeDash": [4, 3], "color": look.ink("accent"), "opacity": 0.8}
        layers.append(marks([{"v": p99}], "rule", {"y": y}, **rule))
    return _panel([*layers, *_touched(o, look, _told(o))], look, 130, "Gaps that end then, ms (logarithmic scale)")


def _told(o: OverTime) -> list[str]:
    """All that is known of each bin, in a line."""
    out = []
    for i, n in enumerate(o.gaps.tolist()):
        times = [words.unit(float(v[i])) for v in (o.p50, o.p99, o.max)]
        gaps = f"{words.many(n, 'gap')}, p50 {times[0]}, p99 {times[1]}, longest {times[2]}"
        told = [gaps if n else "no gap ends"]
        for values, noun in (
            (o.batch, "decoding"),
            (o.kv_tokens, "KV tokens"),
            (o.queued, "waiting"),
            (o.evicted, "evicted"),
        ):
            if values is not None and not math.isnan(values[i]):
                told.append(f"{values[i]:,.4g} {noun}")
        out.append("; ".join(told))
    return out


def _ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    shown = [t for t in (float(f"{k}e{p}") for p in powers for k in (1, 3)) if low / 1.2 <= t <= high * 1.2]
    if not shown:  # all gaps are about as long
        return [_short(low)]
    return [t for t in shown if not str(t).startswith(("3", "0.3", "0.03"))] if len(shown) > 7 else shown


def _causes(o: OverTime, look: Look, *, last: bool) -> Chart:
    order = sorted(range(len(o.causes)), key=lambda k: -np.nansum(o.share[:, k]))
    order = [k for k in order if np.nansum(o.share[:, k]) > 0]
    upto = np.cumsum(o.share[:, order], axis=1)
    rows = []
    for nth, k in enumerate(order):
        low = _held(o, upto[:, nth] - o.share[:, k])
        high = _held(o, np.minimum(upto[:, nth], 1.0))
        cause = words.plain(o.causes[k])
        rows += [{"t": a["t"], "low": a["v"], "high": b["v"], "cause": cause} for a, b in zip(low, high, strict=True)]
    said = []
    for shares in o.share:
        told = sorted((k for k in order if shares[k] >= 0.005), key=lambda k: -shares[k])[:6]
        said.append(", ".join(f"{words.plain(o.causes[k])} {words.percent(float(shares[k]))}" for k in told))
    encoding = {
        "x": _x(o, last=last),
        "y": count("low", axis=AXIS | {"format": "%", "values": [0, 0.5, 1]}, scale={"domain": [0, 1]}),
        "y2": {"field": "high"},
        "color": look.of_causes(o.causes[k] for k in order),
    }
    area = marks(rows, "area", encoding, interpolate="step-after")
    return _panel([area, *_touched(o, look, said)], look, 110, "Where the time of these gaps went")


def _values(o: OverTime, values: Any, look: Look, title: str, *, last: bool) -> Chart:
    y = count(
        "v", axis=AXIS | {"tickCount": 2, "format": "~s" if np.nanmax(values) >= 1 else "~g"}, scale={"zero": True}
    )
    how = {"interpolate": "step-after", "color": look.ink("soft"), "opacity": 0.55}
    return _panel([marks(_held(o, values), "area", {"x": _x(o, last=last), "y": y}, **how)], look, 52, title)
