"""What came of a run, recorded or simulated, in the figures that predictions are about.

Named as in `compare`: `itl.p99.9`, `ttft.p50`, `tokens_per_s`, `preemptions`, `eager_steps`, `tail.CAUSE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stallbook.counters import count
from stallbook.partition import Partition, partition
from stallbook.predict.trail import Trail
from stallbook.run import Ints, Run
from stallbook.tally import tally

__all__ = ["FIGURES", "TIMES", "Outcome", "brief", "of_partition", "outcome"]

ITL: Final = {"itl.p50": 50.0, "itl.p90": 90.0, "itl.p99": 99.0, "itl.p99.9": 99.9, "itl.max": 100.0}
TTFT: Final = {"ttft.p50": 50.0, "ttft.p99": 99.0}
TIMES: Final = (*ITL, *TTFT)
FIGURES: Final = (*TIMES, "tokens_per_s", "preemptions", "eager_steps")
"""Times are in ms."""


@dataclass(frozen=True)
class Outcome:
    """values: by name of a figure; None where the run cannot show it. share: of the tail's time, by cause."""

    values: Mapping[str, float | None]
    share: Mapping[str, float] = field(default_factory=dict)

    @property
    def top(self) -> str | None:
        """The cause that holds most of the tail's time, work apart."""
        stalls = {c: s for c, s in self.share.items() if c not in ("fwd", "pad", "residual")}
        return max(stalls, key=lambda c: stalls[c]) if stalls else None

    def __getitem__(self, name: str) -> float | None:
        if name.startswith("tail."):
            return self.share.get(name.removeprefix("tail."), 0.0)
        return self.values.get(name)


def outcome(run: Run) -> Outcome:
    """All figures of a run."""
    return of_partition(partition(run))


def of_partition(p: Partition) -> Outcome:
    """All figures of a partitioned run."""
    table, counters = tally(p), count(p.run)
    values: dict[str, float | None] = {}
    for name, q in ITL.items():
        ns = table.lengths.max if q == 100 else table.lengths.percentile(q)
        values[name] = None if ns is None else ns / 1e6
    for name, q in TTFT.items():
        ns = counters.ttft.percentile(q)
        values[name] = None if ns is None else ns / 1e6
    values["tokens_per_s"] = counters.tokens_per_s
    values["preemptions"], values["eager_steps"] = counters.preemptions, counters.eager_steps
    return Outcome(values, table.tail().share)


def brief(trail: Trail) -> Outcome:
    """The same of a simulated run without its causes, some five times faster."""
    who, step = trail.emissions()
    c = trail.columns()
    order = np.argsort(who, kind="stable")
    request, stamp = who[order], c["emit"][step[order]]
    same = request[1:] == request[:-1]
    gaps = np.diff(stamp)[same]
    first = np.flatnonzero(np.concatenate([[True], ~same])) if len(request) else np.zeros(0, np.int64)
    arrive = np.array([r.at_ns for r in trail.requests], np.int64)
    waits = stamp[first] - arrive[request[first]]
    values: dict[str, float | None] = _quantiles(ITL, gaps) | _quantiles(TTFT, waits)
    values["tokens_per_s"] = len(who) / trail.end_ns * 1e9 if trail.end_ns else None
    values["preemptions"] = len(trail.evictions) + trail.restarts
    values["eager_steps"] = int((c["graph"] == 2).sum())
    return Outcome(values)


def _quantiles(names: Mapping[str, float], ns: Ints) -> dict[str, float | None]:
    if not len(ns):
        return dict.fromkeys(names)
    found = np.percentile(ns, list(names.values())) / 1e6
    return dict(zip(names, found.tolist(), strict=True))
