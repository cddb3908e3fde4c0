"""Did a rung move a number, or was it noise? One stated rule for every pair of rungs.

Two rungs are compared seed by seed: both ran the same trace, so each seed gives one change, and the changes are the
sample. A change is the natural logarithm of the ratio for a time, the difference for a share of the tail.

**established**  all of:
  - at least 5 pairs;
  - the exact sign-flip test of the mean change, two-sided, gives p <= 1/16 (with 5 pairs: all moved the same way);
  - the mean change is at least 4.6 of its standard errors (the two-sided 1% point of Student's t for 5 pairs);
  - the median change is over 3% (a share: over a tenth of a percentage point).
**suggestive**  all of:
  - at least 4 pairs, of which at least 80% moved the same way;
  - the exact sign-flip test gives p <= 1/8;
  - the median change is over the same bound.
**not resolved**  otherwise.

If a rung changes nothing, the exact test alone calls 1 step in 16 established, whatever the distribution; a study
prints about thirty such words, so that would be two false ones a study. The third condition brings it to about 1 in
100 where the changes scatter like a normal distribution, at a price: an effect that differs much from trace to trace
is called suggestive at most. Where a number stands both as measured and normalised by the machine probe, both are
judged and the weaker word is printed: a claim that only one of them supports depends on how drift is treated.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

__all__ = ["Verdict", "Word", "judge_shares", "judge_times", "sign_flip_p", "weaker"]

Word = Literal["established", "suggestive", "not resolved"]
STRENGTH: Final[tuple[Word, ...]] = ("not resolved", "suggestive", "established")

ESTABLISHED_PAIRS, SUGGESTIVE_PAIRS = 5, 4
ESTABLISHED_P, SUGGESTIVE_P = 1 / 16, 1 / 8
SAME_WAY = 0.8
STANDARD_ERRORS = 4.6
LEAST_LOG_RATIO = math.log(1.03)
LEAST_SHARE = 0.001
EXACT_LIMIT = 16
"""Above this many pairs the flips are drawn (from a fixed seed) and not enumerated."""


@dataclass(frozen=True)
class Verdict:
    """The word and what it rests on. `change` is a ratio for times, a difference for shares."""

    word: Word
    pairs: int
    down: int
    up: int
    change: float | None
    p: float | None


def judge_times(before: Sequence[float], after: Sequence[float]) -> Verdict:
    """The verdict on a time, given per seed in the same order."""
    logs = [math.log(b / a) for a, b in zip(before, after, strict=True) if a > 0 and b > 0]
    verdict = _judge(logs, LEAST_LOG_RATIO)
    change = None if verdict.change is None else math.exp(verdict.change)
    return Verdict(verdict.word, verdict.pairs, verdict.down, verdict.up, change, verdict.p)


def judge_shares(before: Sequence[float], after: Sequence[float]) -> Verdict:
    """The verdict on a share of the tail, given per seed in the same order, as fractions."""
    return _judge([b - a for a, b in zip(before, after, strict=True)], LEAST_SHARE)


def weaker(one: Word, other: Word) -> Word:
    """The weaker of two words."""
    return min(one, other, key=STRENGTH.index)


def sign_flip_p(changes: Sequence[float]) -> float:
    """How often flipping the signs of the changes gives a mean at least as far from zero: 1.0 for none."""
    if not changes:
        return 1.0
    values = np.array(changes, dtype=np.float64)
    signs = _flips(len(values))
    sums = np.abs(signs @ values)
    seen = abs(float(values.sum()))
    # Equal sums differ in the last bits with the order of addition; a tie has to count.
    return float(np.mean(sums >= seen - 1e-9 * float(np.abs(values).sum())))


@lru_cache
def _flips(pairs: int) -> npt.NDArray[np.float64]:
    """A row a way to flip the signs; the first flips none, or all, which is as far from zero."""
    if pairs <= EXACT_LIMIT:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=pairs)))
    drawn = np.random.default_rng(0).choice((-1.0, 1.0), size=(2**EXACT_LIMIT, pairs))
    return np.vstack([np.ones(pairs), drawn])


def _judge(changes: list[float], least: float) -> Verdict:
    pairs = len(changes)
    down, up = sum(c < 0 for c in changes), sum(c > 0 for c in changes)
    if not pairs:
        return Verdict("not resolved", 0, 0, 0, None, None)
    middle = statistics.median(changes)
    p = sign_flip_p(changes)
    word: Word = "not resolved"
    if abs(middle) > least:
        if pairs >= SUGGESTIVE_PAIRS and max(down, up) >= SAME_WAY * pairs and p <= SUGGESTIVE_P:
            word = "suggestive"
        if pairs >= ESTABLISHED_PAIRS and p <= ESTABLISHED_P and _beyond_scatter(changes):
            word = "established"
    return Verdict(word, pairs, down, up, middle, p)


def _beyond_scatter(changes: list[float]) -> bool:
    error = statistics.stdev(changes) / math.sqrt(len(changes))
    return abs(statistics.fmean(changes)) >= STANDARD_ERRORS * error
