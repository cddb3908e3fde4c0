"""A set of gaps or waits in a few figures: percentiles, and shares over all of them and over their tail."""

from __future__ import annotations

from dataclasses import dataclass

from stallbook.beyond import AfterEmission
from stallbook.tally import Distribution, Mix, Tally

__all__ = ["Delivered", "FirstTokens", "Percentiles", "Readings", "Summary", "to_ms"]


@dataclass(frozen=True)
class Percentiles:
    """In ms; None where there is nothing to rank."""

    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    max: float | None

    @classmethod
    def of(cls, ns: Distribution) -> Percentiles:
        """Of a distribution of nanoseconds."""
        p50, p90, p99, p999 = (to_ms(ns.percentile(q)) for q in (50, 90, 99, 99.9))
        return cls(p50, p90, p99, p999, to_ms(ns.max))

    def named(self) -> dict[str, float | None]:
        """As a line of text calls them."""
        return {"p50": self.p50, "p90": self.p90, "p99": self.p99, "p99.9": self.p999, "worst": self.max}


@dataclass(frozen=True)
class Summary:
    """All of the set, and the tail: what is at or above its own p99."""

    times: Percentiles
    threshold_ms: float | None
    all: Mix
    tail: Mix
    max_error_ns: int
    negative_parts: int

    @classmethod
    def of(cls, table: Tally, exactness: tuple[int, int]) -> Summary:
        """Of a tally, with how exactly its parts add up."""
        return cls(Percentiles.of(table.lengths), to_ms(table.tail_ns), table.mix(), table.tail(), *exactness)

    @property
    def mean_ms(self) -> dict[str, float]:
        """What one of the set holds of each cause, on average; empty where there is none."""
        return {cause: ns / 1e6 / self.all.gaps for cause, ns in self.all.time_ns.items()} if self.all.gaps else {}

    @property
    def exact(self) -> bool:
        """Whether each is the sum of its parts and none of these is negative."""
        return self.max_error_ns == 0 and self.negative_parts == 0


@dataclass(frozen=True)
class FirstTokens:
    """The waits for first tokens. never_admitted: those without an admission on record, so without `queue`.

    blocked_ms: what blocked admission meanwhile, by what it was; None where the log does not say. held: the share of
    the time in the queue in which each kind of hold kept a request.
    """

    waits: Summary
    never_admitted: int
    blocked_ms: dict[str, float] | None
    held: dict[str, float]


@dataclass(frozen=True)
class Delivered:
    """The gaps at a boundary. after: None at the engine. empty: deliveries of no token, at any boundary."""

    gaps: Summary
    after: AfterEmission | None
    unmatched: int
    empty: int


@dataclass(frozen=True)
class Readings:
    """The readings of gaps with several tokens that are not attributed to causes."""

    several: int
    zero_filled: Percentiles
    divided: Percentiles


def to_ms(ns: float | None) -> float | None:
    """Nanoseconds in ms, where there are any."""
    return None if ns is None else ns / 1e6
