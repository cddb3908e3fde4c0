"""The picture of a stall: lane by lane what ran in it, and which other streams stood still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from stallbook.causes import ordered
from stallbook.report import words
from stallbook.report.html.look import Chart, Look, by, count, marks, tip
from stallbook.scene import Lane, Piece, Scene, Stream

__all__ = ["causes_of", "picture"]

NAMES: Final = {"charged": "This gap, as charged", "engine": "The engine", "device": "The device"}
BAND: Final = 18
"""Height of a lane, pixels; above it stands its name."""
NAME: Final = 17
STREAM: Final = 9
ID: Final = 16
"""Letters of a request's id that are shown."""
FINGER: Final = 0.02
"""On a phone, what is narrower than this part of the picture says nothing of itself."""


@dataclass
class _Drawing:
    """Marks, in pixels from the top and units of the time axis."""

    unit: float
    least: float
    boxes: list[Chart] = field(default_factory=list)
    waits: list[Chart] = field(default_factory=list)
    flows: list[Chart] = field(default_factory=list)
    texts: list[Chart] = field(default_factory=list)
    height: float = 0

    def time(self, ns: int) -> float:
        """On the axis."""
        return float(f"{ns / self.unit:.6g}")


def causes_of(scene: Scene) -> tuple[str, ...]:
    """Every cause that the picture shows."""
    return ordered(c for lane in scene.lanes for piece in lane.pieces for c in piece.parts)


def picture(scene: Scene, look: Look) -> Chart:
    """One stall."""
    seconds = scene.length >= 10_000_000_000
    shown = scene.length + 2 * scene.around
    d = _Drawing(1e9 if seconds else 1e6, FINGER * shown if look.narrow else 0)
    for lane in scene.lanes:
        _lane(d, lane)
    _streams(d, scene)
    axis = {"title": f"{'s' if seconds else 'ms'} since its last token", "tickCount": 5, "grid": False, "format": ",~r"}
    domain = [d.time(-scene.around), d.time(scene.length + scene.around)]
    x = count("a", scale={"domain": domain, "nice": False}, axis=axis)
    y = count("top", scale={"domain": [d.height, 0], "nice": False}, axis=None)
    at = {"x": x, "x2": {"field": "b"}, "y": y, "y2": {"field": "end"}}
    stall = [{"a": 0, "b": d.time(scene.length), "top": 0, "end": d.height}]
    mine = {"condition": {"test": "datum.own", "value": look.ink("accent")}, "value": look.ink("soft")}
    text = {"x": {"value": 0}, "y": y, "text": by("text"), "color": {"value": look.ink("ink")}}
    layers = [
        marks(stall, "rect", at | {"color": {"value": look.ink("band")}}),
        marks(d.boxes, "rect", at | {"color": look.of_causes(causes_of(scene)), "description": by("tip")}),
        marks(d.waits, "rect", at | {"color": mine, "opacity": {"value": 0.3}, "description": by("tip")}),
        marks(d.flows, "rect", at | {"color": mine}, strokeWidth=1.5),
        marks(d.texts, "text", text, align="left", baseline="bottom", fontSize=11),
    ]
    layers[3]["encoding"]["stroke"] = mine
    return {"layer": layers, "width": look.width - 16, "height": d.height}


def _lane(d: _Drawing, lane: Lane) -> None:
    d.height += NAME
    name = words.plain(NAMES.get(lane.name) or lane.name.capitalize())
    d.texts.append({"top": d.height - 3, "text": f"{name} (in slices)" if lane.sliced else name})
    for piece in lane.pieces:
        d.boxes += _boxes(d, piece)
    d.height += BAND + 4


def _boxes(d: _Drawing, piece: Piece) -> Iterator[Chart]:
    """A piece: its causes one upon the other, each as high as its part of it."""
    length, top = max(piece.t1 - piece.t0, 1), d.height + BAND
    for cause in sorted(piece.parts, key=lambda c: -piece.parts[c]):
        share = piece.parts[cause] / length
        if share < 0.01:
            continue
        end, top = top, top - BAND * share
        name = words.plain(cause)
        box = {"a": d.time(piece.t0), "b": d.time(piece.t1), "top": round(top, 2), "end": round(end, 2), "cause": name}
        if length >= d.least:
            part = f" {words.percent(share)} of" if share < 0.995 else ""
            box["tip"] = tip(f"{name}:{part} {words.ms(piece.t0 / 1e6)} to {words.ms(piece.t1 / 1e6)} ms")
        yield box


def _streams(d: _Drawing, scene: Scene) -> None:
    d.height += NAME
    d.texts.append({"top": d.height - 3, "text": "Tokens: of this request (first line), of others live with it"})
    for stream in (scene.own, *scene.others):
        _stream(d, scene, stream, own=stream is scene.own)
        d.height += STREAM + 3
    d.height += 2


def _stream(d: _Drawing, scene: Scene, stream: Stream, *, own: bool) -> None:
    low, high, top = -scene.around, scene.length + scene.around, d.height
    waited = words.unit((stream.still[1] - stream.still[0]) / 1e6)
    said = tip(f"request {words.plain(stream.request)[:ID]}: no token for {waited}")
    a, b = max(stream.still[0], low), min(stream.still[1], high)
    wait = {"a": d.time(a), "b": d.time(b), "top": top + 2, "end": top + STREAM - 2, "own": own, "tip": said}
    d.waits.append(wait)
    for t0, t1 in stream.flows:
        d.flows.append({"a": d.time(t0), "b": d.time(t1), "top": top, "end": top + STREAM, "own": own})
