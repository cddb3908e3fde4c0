"""Did a quantity move, or was it noise? One stated rule for every comparison of runs, the ladder's included.

A run is the sample. A change is the natural logarithm of a ratio for times and rates, a difference for shares and
amounts. Runs of the same seed served the same requests: they make pairs, and each pair gives one change. Runs without
such partners are compared as two sets.

**established**  the median change is over its bound (3%; a share: a tenth of a point), and
  - paired: at least 5 pairs, all changed the same way, and their mean is over its 1% point of Student's t or the
    ranges of the two sides do not overlap; with 8 pairs or more instead: the exact sign-flip test gives p <= 0.01;
  - unpaired: the exact test over all ways to deal the runs to two sides gives p <= 0.01 (possible from 5 runs a side).
**suggestive**  the median change is over its bound, and
  - paired: 5 or 6 pairs, all changed the same way, each by more than the bound; with more pairs: p <= 0.02;
  - unpaired: p <= 0.02.
**not resolved**  otherwise.

All p are two-sided. Fewer than 5 runs a side hardly ever resolve anything. With 5 pairs no sign-flip p is under 1/16,
so the conditions ask for more than it. Where nothing changed, an answer is established about once in 100 (5 pairs: once
in 60) and suggestive about once in 100 (5 pairs: once in 30). Where a quantity stands both as measured and normalised
by the machine's probe, both are judged and the weaker word stands.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stallbook.compare.exact import is_exact, sign_flip_p, split_p
from stallbook.compare.spread import spread

__all__ = [
    "FEW_PAIRS", "LEAST_PAIRS", "LEAST_RATIO", "LEAST_SHARE", "STRENGTH", "SUGGESTIVE_P", "Verdict", "Word", "judge",
    "judge_shares", "judge_times", "weaker",
]  # fmt: skip

Word = Literal["established", "suggestive", "not resolved"]
STRENGTH: Final[tuple[Word, ...]] = ("not resolved", "suggestive", "established")

LEAST_PAIRS: Final = 5
"""Fewer pairs than this resolve nothing."""
FEW_PAIRS: Final = 6
"""Up to here the exact test cannot fall to `SUGGESTIVE_P` ..."""
MANY_PAIRS: Final = 8
"""... and from here on it can fall to `ESTABLISHED_P`."""
ESTABLISHED_P, SUGGESTIVE_P = 0.01, 0.02
LEAST_RATIO: Final = 1.03
LEAST_SHARE: Final = 0.001
STUDENT_1_PERCENT: Final = {5: 4.604, 6: 4.032, 7: 3.707}
"""By pairs: the two-sided 1% point of Student's t."""


@dataclass(frozen=True)
class Verdict:
    """The word and what it rests on. `change` is a ratio for times and rates, a difference for shares and amounts."""

    word: Word
    pairs: int
    """0 where the sides are not paired."""
    down: int
    up: int
    change: float | None
    p: float | None
    exact: bool
    """Whether p counts every way; else it counts a fixed draw of them."""
    apart: bool | None
    """Whether the ranges of the two sides do not overlap."""


def judge_times(before: Sequence[float], after: Sequence[float], *, paired: bool = True) -> Verdict:
    """The verdict on a time or a rate; paired, the values stand in the same order of seeds."""
    return judge(before, after, paired=paired, ratio=True, least=math.log(LEAST_RATIO))


def judge_shares(before: Sequence[float], after: Sequence[float], *, paired: bool = True) -> Verdict:
    """The verdict on a share, as fractions; paired, the values stand in the same order of seeds."""
    return judge(before, after, paired=paired, ratio=False, least=LEAST_SHARE)


def weaker(one: Word, other: Word) -> Word:
    """The weaker of two words."""
    return min(one, other, key=STRENGTH.index)


def judge(before: Sequence[float], after: Sequence[float], *, paired: bool, ratio: bool, least: float) -> Verdict:
    """The verdict on any quantity. least: a median change up to this is none, whatever its p."""
    if ratio and paired:
        kept = [(b, a) for b, a in zip(before, after, strict=True) if b > 0 and a > 0]
        before, after = [math.log(b) for b, _ in kept], [math.log(a) for _, a in kept]
    elif ratio:
        before, after = ([math.log(value) for value in side if value > 0] for side in (before, after))
    if not before or not after:
        return Verdict("not resolved", 0, 0, 0, None, None, True, None)
    verdict = _paired(before, after, least) if paired else _unpaired(before, after, least)
    if not ratio or verdict.change is None:
        return verdict
    return Verdict(**{**vars(verdict), "change": math.exp(verdict.change)})


def _paired(before: Sequence[float], after: Sequence[float], least: float) -> Verdict:
    changes = [a - b for b, a in zip(before, after, strict=True)]
    pairs, down, up = len(changes), sum(c < 0 for c in changes), sum(c > 0 for c in changes)
    middle, p, apart = statistics.median(changes), sign_flip_p(changes), _apart(before, after)
    word: Word = "not resolved"
    if abs(middle) > least and pairs >= LEAST_PAIRS:
        together = max(down, up) == pairs
        if p <= SUGGESTIVE_P or (pairs <= FEW_PAIRS and together and min(map(abs, changes)) > least):
            word = "suggestive"
        if p <= ESTABLISHED_P if pairs >= MANY_PAIRS else together and (apart or _beyond_scatter(changes)):
            word = "established"
    return Verdict(word, pairs, down, up, middle, p, is_exact(pairs, pairs, paired=True), apart)


def _unpaired(before: Sequence[float], after: Sequence[float], least: float) -> Verdict:
    middle = statistics.median(after) - statistics.median(before)
    p = split_p(before, after)
    word: Word = "not resolved"
    if abs(middle) > least:
        word = "established" if p <= ESTABLISHED_P else "suggestive" if p <= SUGGESTIVE_P else word
    exact = is_exact(len(before), len(after), paired=False)
    return Verdict(word, 0, 0, 0, middle, p, exact, _apart(before, after))


def _apart(before: Sequence[float], after: Sequence[float]) -> bool | None:
    one, other = spread(before), spread(after)
    return None if one is None or other is None else not one.overlaps(other)


def _beyond_scatter(changes: list[float]) -> bool:
    error = statistics.stdev(changes) / math.sqrt(len(changes))
    return abs(statistics.fmean(changes)) >= STUDENT_1_PERCENT[len(changes)] * error
