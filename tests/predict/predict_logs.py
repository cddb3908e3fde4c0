"""Recorded runs and made ones, for tests of predictions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import stallbook as sb
from stallbook.demo.limits import limits_of
from stallbook.demo.settings import Settings
from stallbook.demo.workload import make_trace
from stallbook.predict.costs import CAPTURED_TERMS, TOKEN, DemoCosts
from stallbook.predict.heap import Collector, HeapFit
from stallbook.predict.laws import Law
from stallbook.predict.policy import DemoPolicy
from stallbook.predict.ports import Request
from stallbook.predict.simulate import Setup, simulate
from stallbook.run import Run

LOGS = Path(__file__).parents[1] / "data" / "predict"


@cache
def recorded(name: str) -> Run:
    """A run of the demonstrator that is kept as test data: see its README."""
    return sb.open(LOGS / f"{name}.jsonl.gz")


LAWS = {
    "captured": Law(CAPTURED_TERMS, (250_000.0, 180_000.0, 150.0, 500_000.0, 450_000.0)),
    "eager": Law(("row", "kv token"), (400_000.0, 160.0)),
    "prefill": Law(("chunk", TOKEN, "token beyond 1024"), (400_000.0, 11_000.0, 3_000.0)),
    "swap_out": Law(("copy", "token"), (50_000.0, 300.0)),
    "swap_in": Law(("copy", "token"), (30_000.0, 400.0)),
    "sched": Law(("step", "row", "chunk"), (25_000.0, 6_000.0, 150_000.0)),
    "output": Law(("step", "row"), (5_000.0, 10_000.0)),
    "close": Law(("step", "row"), (10_000.0, 2_000.0)),
}
"""What a step of the planted engine costs, in ns: about what the demonstrator's own do."""
SIZES = {1: -150_000.0, 2: 200_000.0, 8: 90_000.0}
HEAP = HeapFit(7.0, 6.0, 600_000.0, 150_000.0, 80_000.0, 900_000.0, 60.0, 0, 0)
SETTINGS = Settings(seconds=20.0, seed=4, rate=7.0, kv_blocks=700)


def planted_setup(settings: Settings, **more: Any) -> Setup:
    """An engine whose costs are known."""
    heap = HEAP.frozen() if settings.gc_freeze else HEAP
    heap = heap.compact() if settings.compact_history else heap
    costs = DemoCosts(LAWS, SIZES)
    return Setup(
        DemoPolicy(limits_of(settings)), costs.compact() if settings.compact_history else costs,
        heap=Collector(heap), on_loop=settings.tokenize == "loop", wake_ns=80_000, **more,
    )  # fmt: skip


def workload(settings: Settings) -> list[Request]:
    """The demonstrator's own requests, a token for every four letters."""
    trace = make_trace(settings.seed, settings.seconds, settings.rate or 1.0)
    return [
        Request(a.name, a.at_ns, min(len(a.text) // 4 + 1, 2048), a.max_new, 300_000.0 + 700.0 * len(a.text))
        for a in trace
    ]


@cache
def planted(**changes: Any) -> Run:
    """A run of the planted engine, as its log would be."""
    settings = replace(SETTINGS, **changes)
    trail = simulate(workload(replace(settings, rate=SETTINGS.rate)), planted_setup(settings))
    return trail.run(engine="stallbook demo (planted)", config=settings.as_dict(), path="planted.stall")
