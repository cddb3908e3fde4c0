"""Addable totals and distributions of one partition, or of many.

A row stands for `weight` equal gaps, so everything here is exact and its cost follows the number of steps,
not of gaps. Two tallies add up to the tally of both runs together; quantiles are taken from the merged
rows, never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.causes import CLEAN, ordered
from stallbook.run import Ints

if TYPE_CHECKING:
    from stallbook.partition import Partition

__all__ = ["BINS_MS", "Bin", "Distribution", "Mix", "Tally", "merge", "tally", "weighed"]

BINS_MS: Final = (0, 5, 10, 15, 20, 30, 50, 80, 120, 200, 400, 800)
"""Lower edges of the histogram of gaps, in ms; the last bin has no upper edge."""
TAIL_PERCENTILE: Final = 99.0

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Distribution:
    """Weighted values, ascending. Exact: it is the multiset of everything that was counted."""

    values: Values
    weights: Ints

    @classmethod
    def of(cls, values: Values, weights: Ints | None = None) -> Distribution:
        """Collect values in any order; without weights each counts once. A weight of 0 is left out."""
        weights = np.ones(len(values), np.int64) if weights is None else weights
        if (weights <= 0).any():
            values, weights = values[weights > 0], weights[weights > 0]
        order = np.argsort(values, kind="stable")
        return cls(values[order], weights[order])

    def __add__(self, other: Distribution) -> Distribution:
        return Distribution.of(
            np.concatenate((self.values, other.values)), np.concatenate((self.weights, other.weights))
        )

    @cached_property
    def _ranks(self) -> Ints:
        return np.cumsum(self.weights, dtype=np.int64)

    @property
    def count(self) -> int:
        """How many values were counted."""
        return int(self._ranks[-1]) if len(self.values) else 0

    @property
    def max(self) -> float | None:
        """The largest value; None where there is none."""
        return float(self.values[-1]) if len(self.values) else None

    def percentile(self, q: float) -> float | None:
        """The q-th percentile by linear interpolation; None where there is no value.

        The same arithmetic as `numpy.percentile` of every value written out, so that the two are equal.
        """
        if not len(self.values):
            return None
        position = (self.count - 1) * (q / 100)
        below = int(position)
        fraction = position - below
        low, high = self._at(below), self._at(min(below + 1, self.count - 1))
        if fraction >= 0.5:
            return high - (high - low) * (1 - fraction)
        return low + (high - low) * fraction

    def _at(self, rank: int) -> float:
        return float(self.values[np.searchsorted(self._ranks, rank, side="right")])


@dataclass(frozen=True)
class Mix:
    """What a set of gaps is made of: time by cause, and gaps by primary cause."""

    gaps: int
    total_ns: int
    time_ns: dict[str, int]
    primary: dict[str, int]

    @property
    def share(self) -> dict[str, float]:
        """The fraction of the set's time that each cause holds; empty where there is no time."""
        return {cause: ns / self.total_ns for cause, ns in self.time_ns.items()} if self.total_ns else {}


@dataclass(frozen=True)
class Bin:
    """A bin of the histogram; `high_ms` is infinite in the last."""

    low_ms: float
    high_ms: float
    gaps: int
    primary: dict[str, int]


@dataclass(frozen=True)
class Tally:
    """Distinct gaps with how often each occurred. `primary` is an index into `causes`, or -1 for clean."""

    causes: tuple[str, ...]
    gap: Ints
    weight: Ints
    parts: Ints
    primary: Ints
    context_ns: dict[str, int]

    def __add__(self, other: Tally) -> Tally:
        return merge((self, other))

    @cached_property
    def lengths(self) -> Distribution:
        """Gap lengths in ns."""
        return Distribution.of(self.gap, self.weight)

    @property
    def tail_ns(self) -> float | None:
        """The p99 of the gaps: what is at or above it is the tail."""
        return self.lengths.percentile(TAIL_PERCENTILE)

    def mix(self, at_least_ns: float = 0.0) -> Mix:
        """What the gaps of at least this length are made of."""
        weight = np.where(self.gap >= at_least_ns, self.weight, 0)
        time = weighed(weight, self.parts)
        return Mix(
            gaps=int(weight.sum()),
            total_ns=int(weighed(weight, self.gap)),
            time_ns={cause: int(ns) for cause, ns in zip(self.causes, time, strict=True)},
            primary=self._named(self._primaries(np.zeros_like(weight), weight, 1)[0]),
        )

    def tail(self) -> Mix:
        """What the gaps at or above the p99 are made of."""
        threshold = self.tail_ns
        return self.mix(threshold if threshold is not None else 0.0)

    def histogram(self) -> list[Bin]:
        """Gaps by length, each bin split by primary cause."""
        edges = np.array(BINS_MS[1:], np.int64) * 1_000_000
        counts = self._primaries(np.searchsorted(edges, self.gap, "right"), self.weight, len(BINS_MS))
        highs = (*BINS_MS[1:], float("inf"))
        return [
            Bin(low, high, int(row.sum()), self._named(row))
            for low, high, row in zip(BINS_MS, highs, counts, strict=True)
        ]

    def without(self, cause: str) -> Distribution:
        """Gap lengths had this cause cost nothing and all else stayed as it was: a first-order ceiling."""
        return Distribution.of(self.gap - self.parts[:, self.causes.index(cause)], self.weight)

    def part_share(self, cause: str, *, clean: bool) -> Distribution:
        """The share of one cause in each clean gap, or in each gap of the tail. Empty gaps are left out."""
        threshold = self.tail_ns
        if threshold is None or cause not in self.causes:
            return Distribution.of(np.empty(0, np.float64))
        chosen = ((self.primary == -1) if clean else (self.gap >= threshold)) & (self.gap > 0)
        part = self.parts[chosen, self.causes.index(cause)]
        return Distribution.of(part / self.gap[chosen], self.weight[chosen])

    def _primaries(self, group: Ints, weight: Ints, groups: int) -> Ints:
        """Gaps by group and primary cause, clean first: shape (groups, causes + 1)."""
        columns = len(self.causes) + 1
        counts = np.bincount(group * columns + self.primary + 1, weights=weight, minlength=groups * columns)
        return counts.astype(np.int64).reshape(groups, columns)

    def _named(self, counts: Ints) -> dict[str, int]:
        return {**{c: int(n) for c, n in zip(self.causes, counts[1:], strict=True)}, CLEAN: int(counts[0])}


def weighed(weight: Ints, values: Ints) -> Any:
    """`weight @ values`, none of them negative; also where the sum exceeds 64 bits, as on two clocks at once."""
    most = float(weight.sum()) * float(values.max(initial=0))
    return weight @ values if most < 2.0**62 else weight.astype(object) @ values.astype(object)


def tally(partition: Partition) -> Tally:
    """The tally of one partition."""
    weight = partition.row_weight
    totals = weighed(weight, partition.context)
    context = {c: int(ns) for c, ns in zip(partition.causes, totals, strict=True)}
    return Tally(partition.causes, partition.row_gap, weight, partition.rows, partition.row_primary, context)


def merge(tallies: Sequence[Tally]) -> Tally:
    """The tally of everything that was tallied, exactly; of nothing, where there is none."""
    causes = ordered(cause for t in tallies for cause in t.causes)
    columns = [_remap(t, causes) for t in tallies]
    nothing = np.zeros(0, np.int64)
    return Tally(
        causes=causes,
        gap=np.concatenate([nothing, *(t.gap for t in tallies)]),
        weight=np.concatenate([nothing, *(t.weight for t in tallies)]),
        parts=np.concatenate([np.zeros((0, len(causes)), np.int64), *(parts for parts, _ in columns)]),
        primary=np.concatenate([nothing, *(primary for _, primary in columns)]),
        context_ns={c: sum(t.context_ns.get(c, 0) for t in tallies) for c in causes},
    )


def _remap(part: Tally, causes: tuple[str, ...]) -> tuple[Ints, Ints]:
    """A tally's parts and primaries in other columns."""
    if part.causes == causes:
        return part.parts, part.primary
    to = np.array([causes.index(cause) for cause in part.causes], np.int64)
    parts = np.zeros((len(part.gap), len(causes)), np.int64)
    parts[:, to] = part.parts
    return parts, np.where(part.primary < 0, -1, to[part.primary] if len(to) else -1)
