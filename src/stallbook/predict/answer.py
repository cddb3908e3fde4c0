"""Answers: what a change of settings would give, how sure that is, and whether the model may say anything at all.

A prediction is the run that the change gives on the machine of the recorded run, moment by moment: its speed and its
noise in their own order. How sure it is, replicas tell, each with the noise drawn anew in blocks and the machine's
level as far off as it drifted within the run: their spread is the interval's width. Beside it stands the first-order
ceiling: the recorded gaps with the change's causes taken out and all else left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from stallbook.errors import StallbookError
from stallbook.partition import Partition, partition
from stallbook.predict.knobs import Change, changed, knobs_of, written
from stallbook.predict.model import AnyModel
from stallbook.predict.outcome import FIGURES, Outcome, of_partition
from stallbook.predict.pool import Job, Runner
from stallbook.predict.speed import Series, Waits
from stallbook.predict.vllm_model import VllmModel
from stallbook.tally import Distribution, tally

__all__ = ["LIMITS", "REPLICAS", "Base", "Figure", "Prediction", "base_of", "predict"]

REPLICAS: Final = 9
LEVEL: Final = 0.80
"""The part of repeats that an interval is to hold."""
Z: Final = 1.2816
LEAST_DRIFT: Final = 0.02
"""No machine holds its level better than this from one minute to the next."""
APART: Final = 0.04
"""So far is the level of a run's decodes off what its bookkeeping says: 3 to 6% (medians over the pairs of a ladder of
the demonstrator), in the worst tenth 6 to 9%. See docs/predict.md."""
LIMITS: Final = {"itl.p50": 0.15, "itl.p90": 0.15, "itl.p99": 0.25}
"""A model that misses its own run by more than this says nothing."""
COUNTS: Final = ("preemptions", "eager_steps")


@dataclass(frozen=True)
class Figure:
    """One figure of a prediction, with the interval that holds `LEVEL` of repeats."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    """What a change gives. figures: by name. share: of the tail's time by cause; empty where it was not asked for.

    ceiling: p99 and p99.9 to a first order, in ms; None for a change that takes out no cause.
    """

    change: Change
    figures: Mapping[str, Figure]
    share: Mapping[str, float]
    ceiling: Mapping[str, float] | None
    assumptions: tuple[str, ...]

    @property
    def name(self) -> str:
        """The change as it is typed."""
        return written(self.change)


@dataclass(frozen=True)
class Base:
    """The run that predictions start from, and how well the model gives it back.

    misfit: of each figure, the simulated over the recorded, less 1. drift: how far the machine's level moved within
    the run, as a standard deviation of its thirds.
    """

    model: AnyModel
    measured: Outcome
    own: Outcome
    misfit: Mapping[str, float]
    drift: float
    partition: Partition

    @property
    def apart(self) -> float:
        """How far the level of a repeat is taken to be off, as a standard deviation: by the drift within the run and,
        for the demonstrator, by what its bookkeeping misses."""
        return self.drift if isinstance(self.model, VllmModel) else math.hypot(self.drift, APART)

    @property
    def refusal(self) -> str:
        """Why this model may not be asked; empty where it may."""
        over = [name for name, limit in LIMITS.items() if abs(self.misfit.get(name, 0.0)) > limit]
        told = ", ".join(f"{name} by {self.misfit[name]:+.0%} (limit {LIMITS[name]:.0%})" for name in over)
        return f"the model misses its own run: {told}" if told else ""


def base_of(model: AnyModel, run: Runner, *, force: bool = False) -> Base:
    """Hold a model against its own run; StallbookError where it misses it by too much, unless forced."""
    parts = partition(model.run)
    measured = of_partition(parts)
    (own,) = run([Job(model.settings, whole=True)])
    misfit = {}
    for name in FIGURES:
        a, b = own[name], measured[name]
        if a is not None and b is not None:
            misfit[name] = (a - b) / max(b, 10.0) if name in COUNTS else a / b - 1 if b else 0.0
    found = Base(model, measured, own, misfit, _drift(model), parts)
    if found.refusal and not force:
        raise StallbookError("misfit", found.refusal, "record a longer run on a quieter machine", model.run.path)
    return found


def _drift(model: AnyModel) -> float:
    """How far the thirds of a run are apart in what its steps took over their laws, speed and noise together."""
    noise = model.noise
    if len(noise.t) < 30:
        return LEAST_DRIFT
    speed = 1.0 if model.speed is None else model.speed.at(noise.t + model.seen.origin)
    edges = np.linspace(int(noise.t[0]), int(noise.t[-1]) + 1, 4)[1:3]
    third = np.searchsorted(edges, noise.t, side="right")
    level = np.log([np.median((noise.factor * speed)[third == i]) for i in range(3)])
    return max(LEAST_DRIFT, float(level.std(ddof=1)))


def predict(
    base: Base, changes: Sequence[Change], run: Runner, *, replicas: int = REPLICAS, speed: Series | None = None,
    waits: Waits | None = None, seed: int = 1,
) -> list[Prediction]:  # fmt: skip
    """Each change on its own. speed, waits: the machine's series where another run's are to be assumed."""
    jobs: list[Job] = []
    for change in changes:
        settings = changed(base.model.settings, change)
        jobs.append(Job(settings, whole=True, speed=speed, waits=waits))
        for i, level in enumerate(levels(replicas, base.apart, seed)):
            jobs.append(Job(settings, level, draw=1000 * seed + i, whole=i < 2, speed=speed, waits=waits))
    found = run(jobs)
    size = replicas + 1
    return [
        _prediction(base, change, found[size * i : size * (i + 1)]) for i, change in enumerate(changes)
    ]  # fmt: skip


def levels(count: int, drift: float, seed: int) -> list[float]:
    """The machine's level in each replica: as far apart as it drifts, and 1 in the middle whatever their number.

    They are the same for every change, so what differs between two is the change.
    """
    z = [NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)]
    scale = drift / math.sqrt(sum(one * one for one in z) / max(count - 1, 1)) if count > 1 else 0.0
    Random(f"levels {seed}").shuffle(z)
    return [math.exp(scale * one) for one in z]


def _prediction(base: Base, change: Change, found: Sequence[Outcome]) -> Prediction:
    figures = {}
    for name in FIGURES:
        if (value := found[0][name]) is not None:
            drawn = [other for one in found[1:] if (other := one[name]) is not None]
            figures[name] = _figure(value, drawn, count=name in COUNTS)
    _in_order(figures, [name for name in FIGURES if name.startswith("itl.") and name in figures])
    whole = [one.share for one in found if one.share]
    causes = sorted({cause for one in whole for cause in one})
    share = {c: float(np.mean([one.get(c, 0.0) for one in whole])) for c in causes}
    return Prediction(change, figures, share, ceiling(base, change), assumptions(base, change))


def _figure(value: float, replicas: Sequence[float], *, count: bool) -> Figure:
    """A value, and an interval around it as wide as the replicas are apart: in logarithms, for times and rates."""
    x = np.array(replicas, np.float64)
    if count:
        spread = Z * float(x.std(ddof=1)) if len(x) > 1 else 0.0
        return Figure(value, max(0.0, value - spread), value + spread)
    wide = math.exp(Z * float(np.log(np.maximum(x, 1e-9)).std(ddof=1))) if len(x) > 1 else 1.0
    return Figure(value, value / wide, value * wide)


def _in_order(figures: dict[str, Figure], rising: Sequence[str]) -> None:
    """A higher percentile is never below a lower one, so neither are the ends of its interval."""
    for below, name in pairwise(rising):
        figures[name] = replace(figures[name], low=max(figures[name].low, figures[below].low))
    for above, name in pairwise(reversed(rising)):
        figures[name] = replace(figures[name], high=min(figures[name].high, figures[above].high))


def ceiling(base: Base, change: Change) -> dict[str, float] | None:
    """p99 and p99.9 in ms had the causes that a change is about cost nothing, and all else stayed."""
    p = base.partition
    knobs = knobs_of(base.model.settings)
    causes = [c for c in p.causes if any(c in knobs[name].causes for name in change)]
    if not causes:
        return None
    table = tally(p)
    rest = table.gap - table.parts[:, [table.causes.index(c) for c in causes]].sum(axis=1)
    left = Distribution.of(rest, table.weight)
    found: dict[str, Any] = {name: left.percentile(q) for name, q in (("itl.p99", 99.0), ("itl.p99.9", 99.9))}
    return {name: ns / 1e6 for name, ns in found.items() if ns is not None}


def assumptions(base: Base, change: Change) -> tuple[str, ...]:
    """What a prediction takes for granted."""
    told = ["the same requests at the same times, on this machine at the speed of this run"]
    knobs = knobs_of(base.model.settings)
    told += [knobs[name].assumes for name in change if knobs[name].assumes]
    told += base.model.notes
    eager = base.model.costs.laws.get("eager")
    if eager is not None and eager.note and "capture_sizes" not in change:
        told.append(eager.note)
    if base.model.heap is None and ("gc_freeze" in change or "compact_history" in change):
        told.append("this log holds no collections: a change of the heap changes nothing")
    return tuple(told)
