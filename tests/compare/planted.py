"""Samples of runs that never ran: planted gaps, parts and first tokens, from fixed seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stallbook.abilities import PLACED
from stallbook.causes import POST
from stallbook.compare import Sample
from stallbook.compare.totals import Totals
from stallbook.counters import Speed
from stallbook.tally import Distribution, Tally

GAPS = 3000
CAUSES = ("prefill", "gc", "fwd", "residual")
ABILITIES = {**dict.fromkeys(POST, PLACED), "sample": "not recorded"}


def totals(rng: np.random.Generator, noise: float, tail: float, speed: float) -> Totals:
    """Gaps of 6 ms; one in 50 holds a prefill, one in 400 a collection, of which a run has more or less."""
    base = 6e6 * np.exp(rng.normal(0, 0.1, GAPS)) * speed * np.exp(rng.normal(0, noise))
    prefill = np.where(rng.random(GAPS) < 0.02, 14e6 * np.exp(rng.normal(0, 0.3, GAPS)), 0) * np.exp(
        rng.normal(0, noise)
    )
    gc = np.where(rng.random(GAPS) < 0.0025, 150e6 * np.exp(rng.normal(0, noise, GAPS)), 0)
    parts = np.stack([prefill * tail, gc, base, base * 0.01], axis=1).astype(np.int64)
    gap = parts.sum(axis=1)
    lead = parts[:, :2].argmax(axis=1)
    primary = np.where(parts[:, :2].max(axis=1) * 4 >= gap, lead, -1)
    gaps = Tally(CAUSES, gap, np.ones(GAPS, np.int64), parts, primary, {})
    ttft = (40e6 * np.exp(rng.normal(0, 0.5, 200)) * np.exp(rng.normal(0, noise))).astype(np.int64)
    first = Tally(("fwd",), ttft, np.ones(200, np.int64), ttft[:, None], np.full(200, -1), {})
    return Totals(
        gaps, first, Distribution.of(ttft), 200, GAPS + 200, 60.0 * float(np.exp(rng.normal(0, noise))), 3, None
    )


def sample(
    name: str, number: int, *, seed: int | None = None, noise: float = 0.05, tail: float = 1.0, speed: float = 1.0,
    probe: bool = True, **changes: Any,
) -> Sample:  # fmt: skip
    """One run. number: of its random draws. tail: how long its prefills are. speed: of the machine, as probed."""
    rng = np.random.default_rng(number)
    told = totals(rng, noise, tail, speed)
    probed = Speed(90, 90e3 * speed, 0.1, (90e3 * speed,) * 3) if probe else None
    made = Sample(
        path=f"runs/{name}.stall", seed=seed, engine="made 1", boundary="engine", rules="full", abilities=ABILITIES,
        workload={"rate": 7.0}, settings={"budget": 256}, machine={"cpus": 2}, trace=None,
        sizes={"prompt tokens": (200, 1e5, 6e7)}, speed=probed, totals=told,
    )  # fmt: skip
    return replace(made, **changes)


def side(name: str, first: int, runs: int = 5, *, seeds: bool = True, **how: Any) -> list[Sample]:
    """A set of runs whose draws begin at number `first`."""
    return [sample(f"{name}-{i}", first + i, seed=i + 1 if seeds else None, **how) for i in range(runs)]


def shifted(of: Sample, name: str, tail: float, jitter: float, number: int) -> Sample:
    """The same run again with everything from the p99 on made longer, and all of it a little longer or shorter."""
    rng = np.random.default_rng(number)
    gaps = of.totals.gaps
    threshold = gaps.lengths.percentile(97) or 0
    factor = np.where(gaps.gap >= threshold, tail, 1.0) * np.exp(rng.normal(0, jitter))
    parts = (gaps.parts * factor[:, None]).astype(np.int64)
    told = replace(of.totals, gaps=Tally(gaps.causes, parts.sum(axis=1), gaps.weight, parts, gaps.primary, {}))
    return replace(of, path=f"runs/{name}.stall", totals=told)
