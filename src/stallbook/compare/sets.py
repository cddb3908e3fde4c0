"""One set of runs against another: pairs where it can, an answer for each figure, or a refusal."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from stallbook.causes import ordered
from stallbook.compare.alike import Difference, differences, known_keys, refuse, settings_changed
from stallbook.compare.exact import any_moved_p
from stallbook.compare.figures import FIGURES, NO_SUCH, NOT_CHARGED, NOT_PART, Figure, figure, unknown
from stallbook.compare.interval import bootstrap
from stallbook.compare.sample import Boundary, Sample, sampled
from stallbook.compare.spread import Spread, spread
from stallbook.compare.totals import Totals, together
from stallbook.compare.verdict import (
    FEW_PAIRS,
    STRENGTH,
    SUGGESTIVE_P,
    Verdict,
    Word,
    judge,
    judge_shares,
    judge_times,
    weaker,
)
from stallbook.errors import StallbookError
from stallbook.partition import Partition, Rules
from stallbook.run import Run

__all__ = ["HEADLINE", "Answer", "Comparison", "Overall", "compare", "compare_samples"]

HEADLINE: Final = tuple(FIGURES)[:8]
"""The figures that one common test asks about."""
GROUPS: Final = ("tail", "gap", "first")
LEAST_OF_MEAN: Final = 0.01
"""A cause's mean time that changes by less than this part of the whole mean did not change."""


@dataclass(frozen=True)
class Answer:
    """One figure of both sides. before: the runs compared against; a value a run, or a pair, in the same order."""

    figure: Figure
    before: tuple[float, ...]
    after: tuple[float, ...]
    measured: Verdict
    normalised: Verdict | None
    """None where a run has no probe."""
    interval: tuple[float, float] | None
    missing: str | None = None
    """Why a cause cannot be compared; None where it can."""

    @property
    def word(self) -> Word:
        """The answer: of measured and normalised the weaker one."""
        return weaker(self.measured.word, self.normalised.word) if self.normalised else self.measured.word

    @property
    def spreads(self) -> tuple[Spread | None, Spread | None]:
        """Median and range of both sides."""
        return spread(self.before), spread(self.after)

    @property
    def ratio(self) -> bool:
        """Whether changes are ratios; else differences."""
        return self.figure.kind in ("time", "rate") and not self.figure.cause


@dataclass(frozen=True)
class Overall:
    """Did any of the figures of the headline move? One test of all of them at once."""

    word: Word
    p: float
    figures: int


@dataclass(frozen=True)
class Comparison:
    """`after` compared with `before`. pairs: rows of both that share a seed; None where the sides are not paired."""

    before: tuple[Sample, ...]
    after: tuple[Sample, ...]
    pairs: tuple[tuple[int, int], ...] | None
    answers: Mapping[str, Answer]
    overall: Overall
    allowed: tuple[Difference, ...]

    @cached_property
    def merged(self) -> tuple[Totals, Totals]:
        """Each side's runs as one: the distributions merged."""
        return _merged(self.before), _merged(self.after)

    @cached_property
    def settings(self) -> dict[str, tuple[Any, Any]]:
        """What was set differently, before and after."""
        return settings_changed(self.before, self.after)

    @property
    def alone(self) -> list[Sample]:
        """Runs without a partner, which no answer rests on."""
        if self.pairs is None:
            return []
        used = [{pair[side] for pair in self.pairs} for side in (0, 1)]
        sides = zip((self.before, self.after), used, strict=True)
        return [s for side, kept in sides for i, s in enumerate(side) if i not in kept]

    def ask(self, name: str) -> Answer:
        """The answer for any figure, also for one that is not asked by itself."""
        if name in self.answers:
            return self.answers[name]
        return _answer(figure(name), self.before, self.after, self.pairs, _factors([*self.before, *self.after]), None)

    @property
    def judged(self) -> list[Answer]:
        """The answers that rest on figures."""
        return [answer for answer in self.answers.values() if answer.missing is None]


def compare(
    runs: Iterable[Run | Partition], against: Iterable[Run | Partition], rules: Rules = "full",
    allow: Collection[str] = (), boundary: Boundary = "engine", paired: bool = True,
) -> Comparison:  # fmt: skip
    """Compare runs with others; refuses what is not alike, unless its key stands in `allow`."""
    sides = [[sampled(run, rules, boundary) for run in side] for side in (runs, against)]
    return compare_samples(*sides, allow=allow, paired=paired)


def compare_samples(
    runs: Sequence[Sample], against: Sequence[Sample], *, allow: Collection[str] = (), paired: bool = True
) -> Comparison:
    """Compare samples that were taken before."""
    known_keys(allow)
    if not runs or not against:
        raise StallbookError("no-runs", "a side has no run", "name runs on both sides of --against")
    before, after = tuple(against), tuple(runs)
    found = differences((after, before))
    refuse(found, allow)
    same_work = not any(d.key == "workload" for d in found)
    pairs = _pairs(before, after) if paired and same_work else None
    answers = {a.figure.name: a for a in _answers(before, after, pairs)}
    return Comparison(before, after, pairs, answers, _overall(answers, pairs), tuple(found))


def _pairs(before: Sequence[Sample], after: Sequence[Sample]) -> tuple[tuple[int, int], ...] | None:
    """Rows of runs with one seed. None where a seed repeats or most runs of the smaller side find no partner."""
    seeds = [[s.seed for s in side if s.seed is not None] for side in (before, after)]
    if any(len(set(side)) < len(side) for side in seeds):
        return None
    of = {s.seed: i for i, s in enumerate(before) if s.seed is not None}
    pairs = tuple((of[s.seed], i) for i, s in enumerate(after) if s.seed in of)
    return pairs if 2 * len(pairs) > min(len(before), len(after)) else None


def _answers(
    before: Sequence[Sample], after: Sequence[Sample], pairs: Sequence[tuple[int, int]] | None
) -> Iterator[Answer]:
    factors = _factors([*before, *after])
    causes = ordered(cause for s in (*before, *after) for cause in s.abilities)
    groups = [g for g in GROUPS if g != "first" or all(s.totals.first is not None for s in (*before, *after))]
    names = [*HEADLINE, *(f"{g}.{c}" for g in groups for c in causes)]
    for one in map(figure, names):
        reasons = [unknown(one, s) for s in (*before, *after)]
        if all(why in (NOT_PART, NOT_CHARGED) for why in reasons):
            continue  # a cause that this group cannot hold
        missing = next((why for why in reasons if why not in (None, NO_SUCH)), None)  # no such segment: it took no time
        yield _answer(one, before, after, pairs, factors, missing)


def _answer(
    one: Figure, before: Sequence[Sample], after: Sequence[Sample], pairs: Sequence[tuple[int, int]] | None,
    factors: Sequence[float] | None, missing: str | None,
) -> Answer:  # fmt: skip
    values = [one.read(s.totals) for s in (*before, *after)]
    paired, least = pairs is not None, _least(one, before)
    b, a = _known(values[: len(before)], values[len(before) :], pairs)
    ratio = one.kind in ("time", "rate") and not one.cause
    measured = _judged(one, b, a, paired, least)
    even = None
    if factors is not None:
        flat = [_normalised(one, value, factor) for value, factor in zip(values, factors, strict=True)]
        even = _judged(one, *_known(flat[: len(before)], flat[len(before) :], pairs), paired, least)
    interval = bootstrap(b, a, paired=paired, ratio=ratio) if missing is None else None
    return Answer(one, tuple(b), tuple(a), measured, even, interval, missing)


def _known(
    before: Sequence[float | None], after: Sequence[float | None], pairs: Sequence[tuple[int, int]] | None
) -> tuple[list[float], list[float]]:
    """The values that are known; paired, of the pairs in which both are."""
    if pairs is None:
        return [v for v in before if v is not None], [v for v in after if v is not None]
    both = [(before[i], after[j]) for i, j in pairs]
    kept = [(b, a) for b, a in both if b is not None and a is not None]
    return [b for b, _ in kept], [a for _, a in kept]


def _judged(one: Figure, before: Sequence[float], after: Sequence[float], paired: bool, least: float) -> Verdict:
    if one.kind == "share":
        return judge_shares(before, after, paired=paired)
    if one.cause:
        return judge(before, after, paired=paired, ratio=False, least=least)
    return judge_times(before, after, paired=paired)


def _least(one: Figure, before: Sequence[Sample]) -> float:
    """The least change of a cause's mean time: a part of the mean over all causes."""
    if one.name.startswith("gap."):
        means = FIGURES["itl.mean"].values(s.totals for s in before)
    else:
        waits = [s.totals.waits for s in before]
        means = [mix.total_ns / mix.gaps / 1e6 for mix in waits if mix is not None and mix.gaps]
    known = [mean for mean in means if mean is not None]
    return LEAST_OF_MEAN * statistics.median(known) if known else 0.0


def _factors(every: Sequence[Sample]) -> list[float] | None:
    """How slow the machine was in each run, by the median of its probe; None unless every run has one."""
    medians = [s.speed.median_ns for s in every if s.speed is not None and s.speed.median_ns > 0]
    if len(medians) < len(every):
        return None
    middle = statistics.median(medians)
    return [median / middle for median in medians]


def _normalised(one: Figure, value: float | None, factor: float) -> float | None:
    if value is None or one.kind not in ("time", "rate"):
        return value
    return value / factor if one.kind == "time" else value * factor


def _overall(answers: Mapping[str, Answer], pairs: Sequence[tuple[int, int]] | None) -> Overall:
    """One word for the figures of the headline, from one test of all of them.

    Of few figures in many, some move by chance: a figure's own word counts only if the common test agrees.
    """
    asked = [answers[name] for name in HEADLINE]
    most = max((len(a.before), len(a.after)) for a in asked)
    whole = [a for a in asked if (len(a.before), len(a.after)) == most and min((*a.before, *a.after), default=0) > 0]
    if not whole or min(most) < 2:
        return Overall("not resolved", 1.0, len(whole))
    before, after = (np.log([getattr(a, side) for a in whole]) for side in ("before", "after"))
    p = any_moved_p(before, after, paired=pairs is not None)
    best = max((a.word for a in asked), key=STRENGTH.index)
    if pairs is not None and len(before[0]) <= FEW_PAIRS:  # no p is low here: the lowest and the strongest word
        lowest = p <= 2 / 2 ** len(before[0])
        return Overall(best if best == "established" and lowest else "not resolved", p, len(whole))
    return Overall(best if p <= SUGGESTIVE_P else "not resolved", p, len(whole))


def _merged(side: Sequence[Sample]) -> Totals:
    return together([s.totals for s in side])
