"""What a run counts beside its gaps: throughput, first tokens, preemptions, collections, the machine's speed.

Read straight off the run's tables. What the log could not record is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stallbook.run import EAGER, NEVER, UNKNOWN, Ints, Run
from stallbook.tally import Distribution

__all__ = [
    "STILL_DRIFT", "Collections", "Counters", "Series", "Speed", "count", "first_token_waits", "origin_ns", "series",
    "speed", "waiting", "wall_ns",
]  # fmt: skip

STILL_DRIFT: Final = 0.10
"""A machine whose speed moved by more than this between two thirds of a run did not hold still."""
LEAST_PROBES: Final = 9
"""Fewer samples of the machine's speed than this say nothing about drift."""


@dataclass(frozen=True)
class Collections:
    """Garbage collections by generation, and the full ones one by one: after the first step began, or before."""

    by_generation: dict[str, int]
    gen2_serving_ms: list[float]
    gen2_startup_ms: list[float]


@dataclass(frozen=True)
class Counters:
    """Totals of one run. None: not recorded."""

    requests: int
    tokens: int
    wall_s: float
    preemptions: int | None
    eager_steps: int | None
    max_decode_batch: int | None
    collections: Collections | None
    ttft: Distribution = field(repr=False)
    """Arrival to first emission, in ns, of the requests that have both."""

    @property
    def tokens_per_s(self) -> float | None:
        """Throughput; None where no time passed."""
        return self.tokens / self.wall_s if self.wall_s > 0 else None


@dataclass(frozen=True)
class Speed:
    """How fast the machine ran a fixed small product while the run lasted."""

    samples: int
    median_ns: float
    spread: float
    """The middle 80% of the samples as a fraction of their median."""
    thirds_ns: tuple[float, float, float] | None
    """Medians of the run's three thirds by time; None where one has too few samples."""

    @property
    def drift(self) -> float | None:
        """How much longer the same work took in the last third than in the first."""
        return self.thirds_ns[2] / self.thirds_ns[0] - 1 if self.thirds_ns else None

    @property
    def moved(self) -> float | None:
        """How far apart the fastest and the slowest third are."""
        return max(self.thirds_ns) / min(self.thirds_ns) - 1 if self.thirds_ns else None

    @property
    def held_still(self) -> bool | None:
        """Whether all thirds ran at about one speed; None where that is not known."""
        return self.moved <= STILL_DRIFT if self.moved is not None else None


@dataclass(frozen=True)
class Series:
    """Other readings of gaps that end with several tokens, in ns a token. Neither is attributed to causes.

    several: gaps that end with more than one. zero_filled: the first token has the gap, each other 0. divided: each
    has the gap divided by the tokens.
    """

    several: int
    zero_filled: Distribution
    divided: Distribution


def series(gap: Ints, tokens: Ints) -> Series:
    """The readings of gaps (ns) that end with `tokens` each."""
    others = tokens - 1
    zeros = Distribution.of(np.zeros(1, np.int64), others.sum(keepdims=True))
    return Series(int((others > 0).sum()), Distribution.of(gap) + zeros, Distribution.of(gap / tokens, tokens))


def count(run: Run) -> Counters:
    """Every total of a run."""
    decode = run.steps.decode_tokens
    graph_known = "graph" in run.records or bool((run.steps.graph != 0).any())
    return Counters(
        requests=len(np.unique(run.emissions.request)),
        tokens=int(run.emissions.tokens.sum()),
        wall_s=wall_ns(run) / 1e9,
        preemptions=_preemptions(run),
        eager_steps=int((run.steps.graph == EAGER).sum()) if graph_known else None,
        max_decode_batch=int(decode.max()) if len(decode) and decode.max() >= 0 else None,
        collections=_collections(run),
        ttft=Distribution.of(first_token_waits(run)),
    )


def first_token_waits(run: Run) -> Ints:
    """Arrival to first emission in ns, of each request that has both, in the order of the requests."""
    request, first = np.unique(run.emissions.request, return_index=True)
    arrive = run.requests.arrive[request]
    stamp = run.steps.emit[run.emissions.step[first]]
    known = (arrive != UNKNOWN) & (stamp != UNKNOWN)
    waits: Ints = (stamp - arrive)[known]
    return waits


def waiting(run: Run) -> tuple[Ints, Ints]:
    """How many requests had arrived and were not yet admitted: times, and the depth from each on.

    Empty where no admission is on record. One that was never admitted waits until it finishes, or for good.
    """
    arrive, admit, finish = run.requests.arrive, run.requests.admit, run.requests.finish
    if not (admit != UNKNOWN).any():
        return admit[:0], admit[:0]
    left = np.where(admit != UNKNOWN, admit, np.where(finish != UNKNOWN, finish, NEVER))
    known = arrive != UNKNOWN
    t, nth = np.unique(np.concatenate([arrive[known], np.maximum(left, arrive)[known]]), return_inverse=True)
    moves = np.repeat([1, -1], known.sum())
    depth = np.cumsum(np.bincount(nth, weights=moves, minlength=len(t))).astype(np.int64)
    return t[t < NEVER], depth[t < NEVER]


def wall_ns(run: Run) -> int:
    """Length of the recording; from its first to its last stamp where the log does not say."""
    if run.wall_ns >= 0:
        return run.wall_ns
    stamps = _stamps(run)
    return int(stamps.max() - stamps.min()) if len(stamps) else 0


def origin_ns(run: Run) -> int:
    """The first stamp of a recording; 0 where it has none."""
    stamps = _stamps(run)
    return int(stamps.min()) if len(stamps) else 0


def _stamps(run: Run) -> Ints:
    columns = (run.requests.arrive, run.steps.t0, run.steps.t1, run.steps.emit, run.requests.finish)
    stamps = np.concatenate(columns)
    return np.asarray(stamps[(stamps != UNKNOWN) & (stamps < NEVER)])


def speed(run: Run) -> Speed | None:
    """How the machine's speed moved; None where it was not probed."""
    t, ns = run.probes.t, run.probes.ns
    if not len(ns):
        return None
    low, median, high = (float(v) for v in np.percentile(ns, (10, 50, 90)))
    spread = (high - low) / median if median > 0 else 0.0
    return Speed(len(ns), median, spread, _thirds(t, ns))


def _thirds(t: Ints, ns: Ints) -> tuple[float, float, float] | None:
    if len(ns) < LEAST_PROBES or (ns <= 0).any():
        return None
    edges = np.linspace(t.min(), t.max(), 4)[1:3]
    third = np.searchsorted(edges, t, side="right")
    if min(np.bincount(third, minlength=3)) < LEAST_PROBES // 3:
        return None
    first, middle, last = (float(np.median(ns[third == i])) for i in range(3))
    return first, middle, last


def _preemptions(run: Run) -> int | None:
    if run.preemptions >= 0:
        return run.preemptions
    evictions = len(run.evictions.t0)  # one told twice is one
    return evictions if evictions or "evictions" in run.records else None


def _collections(run: Run) -> Collections | None:
    pauses = run.pauses
    if not len(pauses.t0) and "gc" not in run.records:
        return None
    counts = dict.fromkeys(("0", "1", "2"), 0)
    for generation, n in zip(*np.unique(pauses.generation, return_counts=True), strict=True):
        counts["unknown" if generation < 0 else str(generation)] = int(n)
    full = pauses.generation == 2
    first_step = run.steps.t0[0] if len(run.steps.t0) else NEVER
    startup = pauses.t1 <= first_step
    serving, before = ((pauses.t1 - pauses.t0)[full & when] / 1e6 for when in (~startup, startup))
    return Collections(counts, [round(float(ms), 1) for ms in serving], [round(float(ms), 1) for ms in before])
