"""What adds up: the gaps, first tokens and counts of one run, or of several together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallbook.counters import count
from stallbook.partition import Partition
from stallbook.run import NEVER
from stallbook.stalls import LEAST_NS, MEDIANS
from stallbook.tally import Distribution, Mix, Tally, merge, weighed

__all__ = ["Totals", "together", "totals_of"]


@dataclass(frozen=True)
class Totals:
    """Of one run, or of several. What a log does not record is None; first: None under the rules of the post."""

    gaps: Tally
    first: Tally | None
    ttft: Distribution
    requests: int
    tokens: int
    wall_s: float
    preemptions: int | None
    eager_steps: int | None

    @cached_property
    def tail(self) -> Mix:
        """The gaps at or above the p99."""
        return self.gaps.tail()

    @cached_property
    def all(self) -> Mix:
        """Every gap."""
        return self.gaps.mix()

    @cached_property
    def waits(self) -> Mix | None:
        """Every wait for a first token."""
        return None if self.first is None else self.first.mix()

    @cached_property
    def stalled(self) -> tuple[int, float | None]:
        """Gaps that are stalls, as the report counts them, and the share of stream time beyond its threshold."""
        lengths, median = self.gaps.lengths, self.gaps.lengths.percentile(50)
        if median is None:
            return 0, None
        threshold = min(max(round(MEDIANS * median), LEAST_NS), NEVER)
        over = lengths.values > threshold
        beyond = int(weighed(lengths.weights[over], lengths.values[over] - threshold))
        return int(lengths.weights[over].sum()), beyond / self.all.total_ns if self.all.total_ns else 0.0


def totals_of(partition: Partition, gaps: Tally, first: Tally | None) -> Totals:
    """The totals of one run, given the tallies of its gaps and of its first tokens."""
    c = count(partition.run)
    return Totals(gaps, first, c.ttft, c.requests, c.tokens, c.wall_s, c.preemptions, c.eager_steps)


def together(of: Sequence[Totals]) -> Totals:
    """Several runs as one; their distributions are merged, so that quantiles are those of everything that was seen."""
    if len(of) == 1:
        return of[0]
    firsts = [one.first for one in of if one.first is not None]
    nothing = Distribution.of(np.empty(0, np.int64))
    return Totals(
        gaps=merge([one.gaps for one in of]),
        first=merge(firsts) if len(firsts) == len(of) else None,
        ttft=sum((one.ttft for one in of), nothing),
        requests=sum(one.requests for one in of),
        tokens=sum(one.tokens for one in of),
        wall_s=sum(one.wall_s for one in of),
        preemptions=_sum([one.preemptions for one in of]),
        eager_steps=_sum([one.eager_steps for one in of]),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [n for n in counts if n is not None]
    return sum(known) if len(known) == len(counts) else None
