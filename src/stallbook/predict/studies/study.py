"""What a study is: points that were simulated, the panels in which they are drawn, and what they say.

Every point is simulated under the same draws of the recorded run's noise: what differs between two points of a draw is
what the study varies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from stallbook.predict.model import Engine
from stallbook.predict.outcome import brief
from stallbook.predict.trail import Trail

__all__ = ["Asked", "Panel", "Point", "Range", "Study", "Values", "Work", "drawn", "figures"]

Values = Mapping[str, float | None]


@dataclass(frozen=True)
class Asked:
    """What a study starts from. draws: how often each point is simulated; seed: of the first draw."""

    engine: Engine
    path: str = ""
    draws: int = 3
    seed: int = 1
    tick: Callable[[int], object] = lambda n: None


@dataclass(frozen=True)
class Range:
    """The median over the draws, with their least and most."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """One setting of a study: on which line it lies, where, and what came of it."""

    series: str
    x: float
    figures: Mapping[str, Range]

    def __getitem__(self, name: str) -> float:
        """The middle of a figure; nan where there is none."""
        return self.figures[name].value if name in self.figures else float("nan")


@dataclass(frozen=True)
class Panel:
    """One chart: a figure over x. unit: "ms", or "" for a count. causes: instead, shares of all gap time."""

    title: str
    figure: str
    unit: str = "ms"
    log: bool = True
    causes: bool = False


@dataclass(frozen=True)
class Study:
    """A study that was made. x: what lies along it. found: what it says; assumes: what it takes for granted."""

    name: str
    question: str
    path: str
    x: str
    points: Sequence[Point]
    panels: Sequence[Panel]
    found: Sequence[str]
    assumes: Sequence[str]
    draws: int
    columns: Sequence[str] = field(default=())
    """Figures that the table shows beside those of the panels."""

    def at(self, series: str, x: float) -> Point:
        """The point of a line at a place."""
        return next(p for p in self.points if p.series == series and p.x == x)


Work = Callable[[Asked], Study]


def drawn(asked: Asked, series: str, x: float, run: Callable[[int], Values]) -> Point:
    """A point: `run` is given the seed of each draw and says what came of it."""
    found = []
    for i in range(asked.draws):
        found.append(run(1000 * asked.seed + i))
        asked.tick(1)
    names = dict.fromkeys(name for values in found for name in values)
    ranges = {}
    for name in names:
        values = [v for one in found if (v := one.get(name)) is not None]
        if values:
            ranges[name] = Range(median(values), min(values), max(values))
    return Point(series, x, ranges)


def figures(trail: Trail) -> dict[str, float | None]:
    """The figures of every prediction, and means: of first tokens, of the wait for admission, of evictions, in ms."""
    values: dict[str, float | None] = dict(brief(trail).values)
    at = {key: trail.requests[key].at_ns for key in trail.admit}
    waits = [stamp - at[key] for key, stamp in trail.admit.items()]
    values["admitted.mean"] = float(np.mean(waits)) / 1e6 if waits else None
    away = [min(end, trail.end_ns) - start for _, start, end, *_ in trail.evictions]
    values["away.mean"] = float(np.mean(away)) / 1e6 if away else None
    values["redone"] = float(sum(event[4] for event in trail.evictions))
    values["ttft.mean"] = _first(trail)
    return values


def _first(trail: Trail) -> float | None:
    who, step = trail.emissions()
    if not len(who):
        return None
    request, first = np.unique(who, return_index=True)  # emissions are in the order of time
    stamp = trail.columns()["emit"][step[first]]
    arrived = np.array([trail.requests[key].at_ns for key in request.tolist()])
    return float((stamp - arrived).mean()) / 1e6
