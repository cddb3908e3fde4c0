"""A run as one sample: its totals, and what must be alike before they are compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from stallbook.beyond import delivered, tally_waits
from stallbook.compare.totals import Totals, totals_of
from stallbook.counters import Speed, speed
from stallbook.errors import StallbookError
from stallbook.partition import Partition, Rules, partition
from stallbook.run import Ints, Run
from stallbook.tally import tally
from stallbook.waits import boundary_gaps, first_tokens

__all__ = ["PER_RUN", "WORKLOAD", "Boundary", "Sample", "sampled"]

Boundary = Literal["engine", "frontend", "client"]

WORKLOAD: Final = (
    "workload", "dataset", "trace", "duration", "seconds", "rate", "request_rate", "load", "num_prompts", "concurrency",
    "max_concurrency", "burstiness",
)  # fmt: skip
"""Keys of a run's config that say what it was asked to serve."""
PER_RUN: Final = (
    "seed", "rung", "name", "trace_sha256", "rate_auto", "capacity", "capacity_spread", "capacity_probe_ns", "started",
)  # fmt: skip
"""Keys that may differ from run to run of one set."""
MACHINE: Final = ("machine", "cpus", "blas", "python", "numpy")
"""Keys that say where it ran."""


@dataclass(frozen=True)
class Sample:
    """One run. seed: None where the log names none. sizes: of the
    requests, by what they are: how many are known, their sum and the sum of their squares."""

    path: str
    seed: int | str | None
    engine: str
    boundary: str
    rules: str
    abilities: Mapping[str, str]
    workload: Mapping[str, Any]
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    trace: str | None
    sizes: Mapping[str, tuple[int, float, float]]
    speed: Speed | None
    totals: Totals = field(repr=False)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1] or "(in memory)"


def sampled(of: Run | Partition, rules: Rules = "full", boundary: Boundary = "engine") -> Sample:
    """The sample of a run; of a partition, under its own rules."""
    p = partition(of, rules) if isinstance(of, Run) else of
    run, config = p.run, p.run.config
    gaps = tally(p) if boundary == "engine" else tally_waits(boundary_gaps(p, _known(p, boundary)))
    first = tally_waits(first_tokens(p)) if p.rules == "full" else None
    seed = config.get("seed")
    return Sample(
        path=run.path,
        seed=seed if isinstance(seed, (int, str)) else None,
        engine=run.engine,
        boundary=run.boundary if boundary == "engine" else boundary,
        rules=p.rules + (", baseline as given" if p.baseline.method == "explicit" else ""),
        abilities=dict(p.abilities),
        workload={key: config[key] for key in WORKLOAD if config.get(key) is not None},
        settings={key: _plain(config[key]) for key in config if key not in (*WORKLOAD, *PER_RUN, *MACHINE)},
        machine=_machine(run),
        trace=config.get("trace_sha256"),
        sizes={
            "prompt tokens": _sums(run.requests.prompt_tokens),
            "tokens asked for": _sums(run.requests.max_tokens),
        },
        speed=speed(run),
        totals=totals_of(p, gaps, first),
    )


def _known(p: Partition, boundary: str) -> str:
    if boundary not in delivered(p):
        remedy = "leave --boundary out, or name logs that have them"
        raise StallbookError("no-boundary", f"has no deliveries at the {boundary} (full rules)", remedy, p.run.path)
    return boundary


def _machine(run: Run) -> dict[str, Any]:
    """What decides how fast the same work runs, as far as the log says."""
    told: dict[str, Any] = {key: run.config.get(key) for key in ("machine", "cpus")}
    platform = run.facts.get("platform")
    if isinstance(platform, Mapping):
        told |= {key: platform.get(key) for key in ("system", "machine", "cpus")}
    return {key: value for key, value in told.items() if value is not None}


def _plain(value: Any) -> Any:
    """Comparable and printable, whatever a log holds."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else json.dumps(value, default=str)


def _sums(amounts: Ints) -> tuple[int, float, float]:
    known = amounts[amounts >= 0].astype(np.float64)
    return len(known), float(known.sum()), float((known**2).sum())
