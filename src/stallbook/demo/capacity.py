"""`--rate auto`: how fast is this machine, and which arrival rate puts it where stalls happen?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Final

from stallbook.demo.engine import Engine
from stallbook.demo.history import History
from stallbook.demo.ports import Clock, Executor, Intake, Recorder
from stallbook.demo.scheduler import Limits
from stallbook.demo.summary import Stop
from stallbook.demo.workload import MEAN_NEW, make_burst

__all__ = ["BURST_S", "LOAD", "Capacity", "arrival_rate", "measure"]

BURST_S: Final = 4.0
WARM_S: Final = 1.0
WINDOW_S: Final = 0.25
BURST_ROWS: Final = 32
BURST_REQUESTS: Final = 256
LOAD: Final = 0.90


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the burst found. `spread` is (third - first quartile) / median over the windows."""

    tokens_per_s: float
    spread: float
    windows: int


def arrival_rate(capacity: Capacity, load: float = LOAD) -> float:
    """Requests a second whose mean output asks for `load` of the capacity; to two digits after the point."""
    return max(0.01, round(load * capacity.tokens_per_s / MEAN_NEW, 2))


def measure(
    *, executor: Executor, intake: Intake, recorder: Recorder, clock: Clock, history: History,
    stop: Stop | None = None, seconds: float = BURST_S,
) -> Capacity:  # fmt: skip
    """Keep a fixed number of requests in flight for a while and take the median rate of the windows."""
    engine = Engine(
        [], replace(Limits(), max_num_seqs=BURST_ROWS), executor=executor, intake=intake, recorder=recorder,
        clock=clock, history=history,
    )  # fmt: skip
    supply = cycle(make_burst(0, BURST_REQUESTS))
    start = mark = clock.now()
    made, rates = 0, []
    while (now := clock.now()) < start + seconds * 1e9 and not (stop and stop.requested):
        while engine.load < BURST_ROWS + 1:
            engine.offer(next(supply))
        engine.step()
        if now - mark >= WINDOW_S * 1e9:
            if mark - start >= WARM_S * 1e9:
                rates.append((engine.counts.tokens - made) / (clock.now() - mark) * 1e9)
            made, mark = engine.counts.tokens, clock.now()
    for key in engine.jobs:
        executor.drop(key)
    return _summarise(rates)


def _summarise(rates: list[float]) -> Capacity:
    if len(rates) < 2:
        return Capacity(statistics.fmean(rates) if rates else 0.0, 0.0, len(rates))
    low, middle, high = statistics.quantiles(rates, n=4)
    return Capacity(middle, (high - low) / middle if middle else 0.0, len(rates))
