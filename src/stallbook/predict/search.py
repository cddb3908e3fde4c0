"""Which settings? The best order of the single fixes, and a search over all knobs for a goal at the least price.

A search sees one simulation of each setting, all with the recorded noise in its own order: what differs between two
settings is then the setting. Half of it is drawn evenly over the knobs, half are neighbours of the best so far. What
is found is then tried without each of its changes: of settings that give as much, the one with the fewest is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from stallbook.compare.figures import figure
from stallbook.demo.settings import Settings
from stallbook.errors import StallbookError
from stallbook.predict.answer import Base
from stallbook.predict.knobs import Change, changed, fixes, knobs_of, needed
from stallbook.predict.outcome import FIGURES, Outcome
from stallbook.predict.pool import Job, Runner
from stallbook.predict.vllm import VllmSettings

__all__ = ["Found", "Goal", "Stage", "best_order", "read_goal", "search", "trade_figure"]

WORTH: Final = 0.02
"""A further fix must take this much off the figure; of two prices less than this apart, neither is the lower."""
UNITS: Final = {"": 1.0, "ms": 1.0, "s": 1000.0, "us": 0.001}


@dataclass(frozen=True)
class Goal:
    """A figure that is to be below (or, a rate, above) a limit."""

    name: str
    below: bool
    limit: float

    def met(self, value: float | None) -> bool:
        """Whether a value does."""
        return value is not None and (value <= self.limit if self.below else value >= self.limit)

    def miss(self, value: float | None) -> float:
        """By what factor a value misses it; 1 or less where it does not."""
        if not value:
            return float("inf")
        return value / self.limit if self.below else self.limit / value

    def __str__(self) -> str:
        unit = "" if self.name in ("tokens_per_s", "preemptions", "eager_steps") else " ms"
        return f"{self.name} {'<' if self.below else '>'} {self.limit:g}{unit}"


def read_goal(text: str) -> Goal:
    """`itl.p99.9 < 50ms`, as it is typed."""
    found = re.fullmatch(r"\s*([\w.]+)\s*(<=|>=|<|>)\s*([0-9.]+)\s*(ms|us|s|)\s*", text)
    remedy = 'write one figure and a limit, such as "itl.p99.9 < 50ms"'
    if not found:
        raise StallbookError("bad-goal", f"{text!r:.80} is no goal", remedy)
    name, sign, number, unit = found.groups()
    try:
        limit = float(number) * UNITS[unit]
    except ValueError:
        raise StallbookError("bad-goal", f"{number!r} is no number", remedy) from None
    return Goal(_known(name), sign.startswith("<"), limit)


def _known(name: str) -> str:
    told = figure(name).name.replace("p999", "p99.9")
    if told not in FIGURES:
        raise StallbookError("bad-goal", f"{name!r} is not predicted", f"use one of {', '.join(FIGURES)}")
    return told


def trade_figure(text: str) -> str:
    """What is to be paid least of: a figure, or `ttft` or `throughput` for the usual one."""
    return _known({"ttft": "ttft.p50", "throughput": "tokens_per_s", "itl": "itl.p50"}.get(text, text))


@dataclass(frozen=True)
class Stage:
    """One more fix on top of those before it."""

    change: Change
    outcome: Outcome


def best_order(base: Base, run: Runner, by: str) -> list[Stage]:
    """The fixes one upon the other, each time the one that takes most off the figure; until none takes off much."""
    left, stages = fixes(base.model.settings), list[Stage]()
    made: Change = {}
    now = base.own[by]
    while left and now:
        every = [{**made, **fix} for fix in left]
        jobs = [(change, job) for change in every if (job := _job(base.model.settings, change)) is not None]
        if not jobs:
            break
        told = list(zip(jobs, run([job for _, job in jobs]), strict=True))
        (change, _), best = min(told, key=lambda one: one[1][by] or float("inf"))
        value = best[by]
        if value is None or value > now * (1 - WORTH):
            break
        stages.append(Stage(change, best))
        left = [fix for fix in left if not set(fix) <= set(change)]
        made, now = change, value
    return stages


def _job(settings: Settings | VllmSettings, change: Change) -> Job | None:
    """None where the settings do not go together."""
    try:
        return Job(changed(settings, change))
    except StallbookError:
        return None


@dataclass(frozen=True)
class Found:
    """What a search saw. seen: every setting with what it gave; the first is the run as it was recorded.

    best: the index of the one that meets the goal at the least price, with the fewest changes; None where none does.
    front: those than which none is better both in the goal's figure and in the price.
    """

    goal: Goal
    trade: str
    seen: tuple[Stage, ...]
    best: int | None
    front: tuple[int, ...]


def search(
    base: Base, run: Runner, goal: Goal, trade: str, *, count: int = 240, fixed: Change | None = None, seed: int = 1
) -> Found:  # fmt: skip
    """Look at `count` settings. fixed: what is set in all of them, and left out of the search."""
    settings = changed(base.model.settings, fixed or {})
    choices = {k.name: list(dict.fromkeys(k.tries(settings))) for k in knobs_of(settings).values()}
    choices = {name: tries for name, tries in choices.items() if len(tries) > 1 and name not in (fixed or {})}
    random = Random(seed)
    seen: dict[tuple[Any, ...], Stage] = {}
    _look(base, run, [dict(fixed or {})], seen)
    drawn = [_draw(random, choices, fixed) for _ in range(3 * count)]
    _look(base, run, drawn, seen, most=max(1, count // 2))
    while len(seen) < count:
        near = _neighbours(random, list(seen.values()), goal, trade, choices)
        before = len(seen)
        _look(base, run, near, seen, most=min(count, before + max(8, count // 8)))
        if len(seen) == before:
            break
    _shorten(base, run, goal, trade, seen, fixed or {})
    stages = tuple(seen.values())
    return Found(goal, trade, stages, _best(stages, goal, trade), _front(stages, goal.name, trade))


def _shorten(
    base: Base, run: Runner, goal: Goal, trade: str, seen: dict[tuple[Any, ...], Stage], fixed: Change
) -> None:  # fmt: skip
    """Look at what the best one is without each of its changes, until none of them is better."""
    before = -1
    while len(seen) > before and (best := _best(list(seen.values()), goal, trade)) is not None:
        before, change = len(seen), list(seen.values())[best].change
        fewer = [
            {name: value for name, value in change.items() if name != left} for left in change if left not in fixed
        ]
        _look(base, run, fewer, seen, most=before + len(fewer))


def _draw(random: Random, choices: dict[str, list[Any]], fixed: Change | None) -> Change:
    return {**{name: random.choice(tries) for name, tries in choices.items()}, **(fixed or {})}


def _look(
    base: Base, run: Runner, changes: Sequence[Change], seen: dict[tuple[Any, ...], Stage], most: int = 1
) -> None:  # fmt: skip
    """Simulate those that were not seen yet, until `most` are."""
    own, new = base.model.settings, dict[tuple[Any, ...], tuple[Change, Job]]()
    for change in changes:
        kept = needed(own, change)
        key = tuple(sorted(kept.items()))
        if len(seen) + len(new) < most and key not in seen and (job := _job(own, kept)) is not None:
            new[key] = (kept, job)
    told = run([job for _, job in new.values()])
    for (key, (settled, _)), outcome in zip(new.items(), told, strict=True):
        seen[key] = Stage(settled, outcome)


def _price(stage: Stage, trade: str) -> float:
    value = stage.outcome[trade]
    if value is None:
        return float("inf")
    return -value if trade == "tokens_per_s" else value


def _rank(stage: Stage, goal: Goal, trade: str) -> tuple[float, float]:
    """First whether the goal is met, or by how much it is missed; then the price."""
    return max(1.0, goal.miss(stage.outcome[goal.name])), _price(stage, trade)


def _best(stages: Sequence[Stage], goal: Goal, trade: str) -> int | None:
    met = [i for i, stage in enumerate(stages) if goal.met(stage.outcome[goal.name])]
    if not met:
        return None
    prices = [_price(stages[i], trade) for i in met]
    most = min(prices) + WORTH * abs(min(prices))
    alike = [i for i, price in zip(met, prices, strict=True) if price <= most]
    return min(alike, key=lambda i: (len(stages[i].change), _price(stages[i], trade)))


def _front(stages: Sequence[Stage], name: str, trade: str) -> tuple[int, ...]:
    sign = -1.0 if name == "tokens_per_s" else 1.0
    points = [(sign * (s.outcome[name] or float("inf")), _price(s, trade)) for s in stages]
    order = sorted(range(len(stages)), key=lambda i: (points[i], len(stages[i].change)))  # the same for less
    front, least = [], float("inf")
    for i in order:
        if points[i][1] < least:
            front.append(i)
            least = points[i][1]
    return tuple(front)


def _neighbours(
    random: Random, stages: Sequence[Stage], goal: Goal, trade: str, choices: dict[str, list[Any]]
) -> list[Change]:  # fmt: skip
    """One knob of the front's and of the best settings moved."""
    best = sorted(range(len(stages)), key=lambda i: _rank(stages[i], goal, trade))[:6]
    out: list[Change] = []
    for i in dict.fromkeys([*best, *_front(stages, goal.name, trade)]):
        for name, tries in choices.items():
            out += [{**stages[i].change, name: value} for value in tries]
    random.shuffle(out)
    return out
