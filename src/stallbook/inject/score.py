"""How well a partition found what was planted. Pure: truth and partition in, numbers out.

Which gaps a fault affects follows from the journal alone, by overlap with its windows:

- *affected*: one cause was planted for at least 1.2 ms and 30% of the gap, and no other for 70% of that. The right
  primary is this cause. (The partition asks for 1 ms and 25%: a gap at that very border proves nothing.)
- *calm*: less than 0.5 ms and 10% of the gap were planted. The right primary is `clean`.
- everything else is left out and counted: *between* the two, *competing* causes, or *disturbed*, where the journal saw
  the machine take 2% of the gap or more from the engine with nothing planted that would explain it.

A window that one request owns takes its time from whatever was planted for everybody meanwhile. Planted time comes on
top of what a cause always takes (every step schedules), so the charged time is counted above the median of calm gaps.

A cause whose faults were asked for is scored even where none of its gaps can be judged, or none of its faults could be
planted: then it is *unjudged*, and there is no macro F1, since a mean over the others would pass for one over all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.causes import CLEAN, ordered
from stallbook.inject.task import KINDS
from stallbook.inject.truth import Truth, Window
from stallbook.partition import Partition
from stallbook.run import Ints

__all__ = ["LEFT_OUT", "CauseScore", "Miss", "Score", "judge", "score"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

AFFECTED_NS, AFFECTED_SHARE = 1_200_000, 0.30
CALM_NS, CALM_SHARE = 500_000, 0.10
COMPETING: Final = 0.70
DISTURBED_SHARE: Final = 0.02
LEFT_OUT: Final = ("between", "competing", "disturbed")
_CLEAN, _OUT = -1, -2


@dataclass(frozen=True)
class CauseScore:
    """One cause. Counts are of gaps but for `faults`; `errors`: |charged above calm - planted| / planted."""

    faults: int
    true_positive: int
    false_positive: int
    false_negative: int
    errors: Floats

    def __add__(self, other: CauseScore) -> CauseScore:
        return CauseScore(
            self.faults + other.faults, self.true_positive + other.true_positive,
            self.false_positive + other.false_positive, self.false_negative + other.false_negative,
            np.concatenate([self.errors, other.errors]),
        )  # fmt: skip

    @property
    def precision(self) -> float | None:
        """Of the gaps that were told to have this cause, how many do; None where none was."""
        told = self.true_positive + self.false_positive
        return self.true_positive / told if told else None

    @property
    def recall(self) -> float | None:
        """Of the gaps that have this cause, how many were told to; None where none has."""
        there = self.true_positive + self.false_negative
        return self.true_positive / there if there else None

    @property
    def f1(self) -> float | None:
        """Their harmonic mean; None where the cause affected no gap."""
        if self.recall is None:
            return None
        return 2 * self.true_positive / (2 * self.true_positive + self.false_positive + self.false_negative)


@dataclass(frozen=True)
class Miss:
    """A gap that was told another cause than it has."""

    request: str
    step: int
    t0: int
    gap_ns: int
    right: str
    told: str
    planted_ns: int
    parts: dict[str, int]


@dataclass(frozen=True)
class Score:
    """Of one run, or of several added up. alarms: calm gaps that were told a cause. left_out: gaps, by reason."""

    causes: dict[str, CauseScore]
    calm: int
    alarms: dict[str, int]
    left_out: dict[str, int]
    misses: tuple[Miss, ...] = ()
    reconciled: bool = True

    def __add__(self, other: Score) -> Score:
        causes = dict(self.causes)
        for cause, one in other.causes.items():
            causes[cause] = causes[cause] + one if cause in causes else one
        return Score(
            {c: causes[c] for c in ordered(causes)}, self.calm + other.calm, _added(self.alarms, other.alarms),
            _added(self.left_out, other.left_out), self.misses + other.misses, self.reconciled and other.reconciled,
        )  # fmt: skip

    @property
    def macro_f1(self) -> float | None:
        """The mean over causes, each counted once; None where one of them has none."""
        values = [one.f1 for one in self.causes.values() if one.f1 is not None]
        return sum(values) / len(values) if values and not self.unjudged else None

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The causes that were asked for and of which no gap could be judged."""
        return tuple(cause for cause, one in self.causes.items() if one.f1 is None)


def _added(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in (*a, *(k for k in b if k not in a))}


@dataclass(frozen=True)
class Judged:
    """What is right for each gap: index into `causes`, -1 clean, -2 left out. planted: ns, (causes, gaps)."""

    causes: tuple[str, ...]
    right: Ints
    planted: Floats
    reasons: dict[str, int]


def judge(truth: Truth, p: Partition) -> Judged:
    """Say what is right for each gap, from the journal alone: of the partition it needs only the gaps' edges."""
    gaps = p.gaps
    refused = (KINDS[kind] for kind in (*truth.failed, *truth.unavailable) if kind in KINDS)
    causes = ordered((*(fault.cause for fault in truth.faults), *refused))
    planted = _planted(truth, p, causes)
    length = (gaps.t1 - gaps.t0).astype(np.float64)
    rank = np.sort(planted, axis=0)
    most = rank[-1] if len(causes) else np.zeros(len(length))
    second = rank[-2] if len(causes) > 1 else np.zeros(len(length))
    inside = (gaps.t0 >= truth.t0) & (gaps.t1 <= truth.t1)
    foreign = _amount(truth.foreign, gaps.t0, gaps.t1) + _amount(truth.hindered, gaps.t0, gaps.t1)
    calm = (planted.sum(axis=0) < CALM_NS) & (planted.sum(axis=0) < CALM_SHARE * length)
    large = (most >= AFFECTED_NS) & (most >= AFFECTED_SHARE * length)
    disturbed = inside & (foreign >= DISTURBED_SHARE * length)
    competing = inside & ~disturbed & large & (second > COMPETING * most)
    affected = inside & ~disturbed & large & ~competing
    right = np.full(len(length), _OUT, np.int64)
    right[inside & ~disturbed & calm] = _CLEAN
    right[affected] = planted[:, affected].argmax(axis=0) if len(causes) else _CLEAN
    between = inside & ~disturbed & ~competing & (right == _OUT)
    reasons = dict(zip(LEFT_OUT, (int(m.sum()) for m in (between, competing, disturbed)), strict=True))
    return Judged(causes, right, planted, reasons)


def _planted(truth: Truth, p: Partition, causes: tuple[str, ...]) -> Floats:
    """Planted time of each cause in each gap, ns, (causes, gaps)."""
    gaps, names = p.gaps, {name: i for i, name in enumerate(p.run.requests.names)}
    windows: list[tuple[list[Window], list[Window]]] = []
    for cause in causes:
        every = [w for fault in truth.faults if fault.cause == cause for w in fault.windows]
        windows.append(([w for w in every if not w.request], [w for w in every if w.request]))
    out = np.stack([_amount(shared, gaps.t0, gaps.t1) for shared, _ in windows]) if causes else np.zeros((0, len(gaps)))
    for k, (_, own) in enumerate(windows):
        for w in own:
            first, last = np.searchsorted(gaps.request, [names[w.request], names[w.request] + 1])
            low = first + int(np.searchsorted(gaps.t1[first:last], w.t0, "right"))
            high = first + int(np.searchsorted(gaps.t0[first:last], w.t1, "left"))
            t0, t1 = np.maximum(gaps.t0[low:high], w.t0), np.minimum(gaps.t1[low:high], w.t1)
            for j, (shared, _) in enumerate(windows):
                out[j, low:high] -= _amount(shared, t0, t1)
            out[k, low:high] += (t1 - t0) * (w.ns / (w.t1 - w.t0))
    return out


def _amount(windows: Sequence[Window], t0: Ints, t1: Ints) -> Floats:
    """How much of what lies in these disjoint windows falls into each [t0, t1)."""
    ordered_by_time = sorted(windows, key=lambda w: w.t0)
    edges = np.array([t for w in ordered_by_time for t in (w.t0, w.t1)], np.float64)
    if not len(edges):
        return np.zeros(len(t0))
    total = np.repeat(np.cumsum([0] + [w.ns for w in ordered_by_time]), 2)[1:-1].astype(np.float64)
    return np.asarray(np.interp(t1, edges, total) - np.interp(t0, edges, total))


def score(truth: Truth, p: Partition, keep: int = 50) -> Score:
    """Hold the partition against the truth. `keep`: how many wrong gaps are kept to be looked at."""
    judged = judge(truth, p)
    told = p.row_primary[p.row_of_gap]
    column = [p.causes.index(c) if c in p.causes else -9 for c in judged.causes]
    known, calm = judged.right != _OUT, judged.right == _CLEAN
    scores = {}
    for k, cause in enumerate(judged.causes):
        there, said = judged.right == k, known & (told == column[k])
        planted = judged.planted[k, there]
        charged = _above_calm(p, column[k], there, calm) if column[k] >= 0 else np.zeros(len(planted))
        scores[cause] = CauseScore(
            sum(fault.cause == cause for fault in truth.faults), int((there & said).sum()), int((~there & said).sum()),
            int((there & ~said).sum()), np.abs(charged - planted) / planted,
        )  # fmt: skip
    alarms = {c: n for i, c in enumerate(p.causes) if (n := int((calm & (told == i)).sum()))}
    return Score(
        scores, int(calm.sum()), alarms, judged.reasons, _misses(judged, p, told, column, keep),
        (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0),
    )  # fmt: skip


def _above_calm(p: Partition, column: int, there: Bools, calm: Bools) -> Floats:
    """What these gaps are charged for a cause beyond what it takes in a calm gap anyway, ns."""
    usual = np.median(p.rows[p.row_of_gap[calm], column]) if calm.any() else 0.0
    return np.asarray(p.rows[p.row_of_gap[there], column] - usual, np.float64)


def _misses(judged: Judged, p: Partition, told: Ints, column: list[int], keep: int) -> tuple[Miss, ...]:
    """Some of the wrong gaps, one a row of the partition: requests that stalled together tell the same."""
    right = np.array([*column, _OUT, _CLEAN])[judged.right]  # -2 and -1 count from the end
    wrong = np.flatnonzero((judged.right != _OUT) & (right != told))
    _, first = np.unique(p.row_of_gap[wrong], return_index=True)
    return tuple(_miss(judged, p, int(g), int(told[g])) for g in wrong[first][:keep])


def _miss(judged: Judged, p: Partition, g: int, told: int) -> Miss:
    gaps, k = p.gaps, int(judged.right[g])
    parts: dict[str, Any] = {c: int(v) for c, v in zip(p.causes, p.rows[p.row_of_gap[g]], strict=True) if v}
    return Miss(
        p.run.requests.names[gaps.request[g]], int(p.run.steps.id[gaps.step_to[g]]), int(gaps.t0[g]),
        int(gaps.t1[g] - gaps.t0[g]), judged.causes[k] if k >= 0 else CLEAN, p.causes[told] if told >= 0 else CLEAN,
        int(judged.planted[k, g]) if k >= 0 else 0, parts,
    )  # fmt: skip
