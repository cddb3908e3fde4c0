"""The charts of one run: gaps by length, where the tail's time went, what first tokens waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stallbook.causes import CLEAN
from stallbook.report import words
from stallbook.report.html.look import Chart, Look, by, count, marks, tip
from stallbook.report.model import RunReport
from stallbook.report.summary import Summary
from stallbook.tally import Bin

__all__ = ["bars", "first_tokens", "histogram", "in_tail", "stacked", "tail"]

ROW = 22
"""Height of a bar with its gap, pixels."""
NAMES = 92
"""Room for the names of causes."""
WHOLE = {"domain": [0, 1], "nice": False}


def histogram(r: RunReport, look: Look) -> Chart:
    """Gaps by length: how many on top, below what their primary causes were."""
    filled = [i for i, one in enumerate(r.histogram) if one.gaps]
    shown = r.histogram[filled[0] : filled[-1] + 1]
    labels = [_bin_name(b, look) for b in shown]
    order = [CLEAN, *r.causes]
    counted = [
        {"bin": label, "gaps": b.gaps, "said": words.compact(b.gaps), "tip": tip(f"{label} ms: {b.gaps:,} gaps")}
        for label, b in zip(labels, shown, strict=True)
    ]
    parts = [
        {"bin": label, "cause": words.plain(cause), "low": low, "high": high, "tip": tip(text)}
        for label, b in zip(labels, shown, strict=True)
        for cause, low, high, text in stacked(b.primary, order, f"{label} ms", "gaps")
    ]
    x = {"field": "bin", "type": "ordinal", "sort": labels, "scale": {"domain": labels}}
    many = {"x": x | {"axis": None}, "y": count("gaps", scale={"type": "symlog", "constant": 1}, axis=None)}
    named = {"labelAngle": 0, "title": "gap, ms, from" if look.narrow else "gap, ms", "ticks": False, "domain": False}
    share = count("low", scale=WHOLE, axis={"format": "%", "values": [0, 0.5, 1], "title": None, "grid": False})
    colour = look.of_causes([c for c in order if any(b.primary.get(c) for b in shown)])
    split = {"x": x | {"axis": named}, "y": share, "y2": {"field": "high"}, "color": colour, "description": by("tip")}
    size = {"width": look.width - 44}
    bars_ = marks(counted, "bar", many | {"description": by("tip")}, color=look.ink("soft"))
    said = marks(counted, "text", many | {"text": by("said")}, dy=-7, fontSize=10 if look.narrow else 12)
    top = {"layer": [bars_, said], "height": 90, "title": "How many (logarithmic scale)"}
    below = marks(parts, "bar", split, stroke=look.ink("ground"), strokeWidth=0.5)
    both = [top | size, below | size | {"height": 150, "title": "Their primary causes"}]
    return {"vconcat": both, "spacing": 14, "resolve": {"scale": {"x": "independent"}}}


def _bin_name(b: Bin, look: Look) -> str:
    if look.narrow:
        return f"{b.low_ms:g}"
    return f"{b.low_ms:g}–{b.high_ms:g}" if b.high_ms != float("inf") else f"{b.low_ms:g}+"


def stacked(
    amounts: Mapping[str, float], order: list[str], of: str, noun: str
) -> Iterator[tuple[str, float, float, str]]:
    """Shares of a whole one upon the other: cause, from, to, and what to say of it."""
    total, low = sum(amounts.values()), 0.0
    for cause in order:
        if n := amounts.get(cause, 0):
            high = min(low + n / total, 1.0)
            said = f"{n:,.0f} {noun}, " if noun else ""
            yield cause, low, high, f"{of}: {words.plain(cause)}, {said}{words.percent(n / total)}"
            low = high


def in_tail(r: RunReport) -> list[str]:
    """The causes that hold time anywhere in the run, the largest part of the tail first."""
    share = r.tail.share
    return sorted((c for c in r.causes if r.all.time_ns[c]), key=lambda c: -share.get(c, 0))


def tail(r: RunReport, look: Look) -> Chart:
    """Shares of the tail by time and by count."""
    causes = [c for c in in_tail(r) if r.tail.share.get(c) or r.tail.primary.get(c)]
    gaps = max(r.tail.gaps, 1)
    time = {c: r.tail.share.get(c, 0.0) for c in causes}
    led = {c: r.tail.primary.get(c, 0) / gaps for c in [*causes, CLEAN] if r.tail.primary.get(c)}
    names = [*causes, *([CLEAN] if CLEAN in led else [])]
    said = "of the tail's time", "of its gaps have this as their primary cause"
    if look.narrow:
        both = {
            "vconcat": [
                bars(time, causes, look, look.width, "By time", said[0]),
                bars(led, [c for c in names if c in led], look, look.width, "By count (primary causes)", said[1]),
            ],
            "spacing": 16,
        }
    else:
        left, right = int(look.width * 0.57), int(look.width * 0.43)
        both = {
            "hconcat": [
                bars(time, names, look, left, "By time", said[0]),
                bars(led, names, look, right, "By count (primary causes)", said[1], named=False),
            ],
            "spacing": 12,
        }
    return both | {"resolve": {"scale": {"color": "independent"}}}


def bars(
    shares: Mapping[str, float], names: list[str], look: Look, width: int, title: str, said: str, *, named: bool = True
) -> Chart:
    """A bar a cause with its percentage at the end."""
    rows = []
    for cause, share in shares.items():
        name, percent = words.plain(cause), words.percent(share)
        rows.append({"cause": name, "share": share, "said": percent, "tip": tip(f"{name}: {percent} {said}")})
    domain = [words.plain(c) for c in names]
    axis = {"title": None, "ticks": False, "domain": False, "labelLimit": NAMES, "minExtent": NAMES}
    most = max([*shares.values(), 0.01]) * (1.25 if look.narrow else 1.2)
    at = {
        "y": by("cause", sort=domain, scale={"domain": domain}, axis=axis if named else None),
        "x": count("share", axis=None, scale={"domain": [0, most], "nice": False}),
    }
    colour = look.of_causes(names, legend=False)
    return {
        "layer": [
            marks(rows, "bar", at | {"color": colour, "description": by("tip")}, height=ROW - 7),
            marks(rows, "text", at | {"text": by("said")}, align="left", dx=4),
        ],
        "width": width - (NAMES + 12 if named else 12),
        "height": ROW * len(names),
        "title": title,
    }


def first_tokens(of: Summary, look: Look) -> Chart:
    """What the waits for first tokens are made of: of all, and of the longest."""
    rows = [("the only wait" if of.all.gaps == 1 else f"all {of.all.gaps:,} waits", of.all)]
    if of.tail.gaps < of.all.gaps:
        rows.append((f"the {of.tail.gaps:,} of {words.unit(of.threshold_ms)} or longer", of.tail))
    order = sorted(of.all.time_ns, key=lambda c: -of.all.time_ns[c])
    labels = [label for label, _ in rows]
    parts = [
        {"row": label, "cause": words.plain(cause), "low": low, "high": high, "tip": tip(text)}
        for label, mix in rows
        for cause, low, high, text in stacked(mix.time_ns, order, label, "")
    ]
    scale = {"paddingInner": 0.55, "paddingOuter": 0.3}
    y = by("row", sort=labels, axis=None, scale=scale)
    x = count("low", axis={"format": "%", "title": None, "tickCount": 4, "grid": False}, scale=WHOLE)
    split = {"x": x, "x2": {"field": "high"}, "y": y, "color": look.of_causes(c for c in order if of.all.time_ns[c])}
    bar = marks(parts, "bar", split | {"description": by("tip")}, stroke=look.ink("ground"), strokeWidth=0.5)
    text = {"x": {"value": 0}, "y": y, "text": by("row")}
    said = marks([{"row": one} for one in labels], "text", text, align="left", baseline="bottom", dy=-15)
    return {"layer": [bar, said], "width": look.width - 16, "height": 52 * len(rows)}
