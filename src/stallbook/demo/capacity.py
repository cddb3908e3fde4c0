"""`--rate auto`: how fast is this machine, and which arrival rate puts it where stalls happen?

A burst keeps 32 requests in flight, the largest captured batch, for four seconds of the workload's own mix on
the engine itself: tokenizer, prefill, collector and all, since the forward pass alone promises far more than
the engine delivers. The first second fills the batch and warms up; of the rest, the median quarter-second is the
capacity, so that one collection or one neighbour does not set the rate. Output lengths are exponential, which
has no memory: requests finish at their steady rate from the start, and the mix is right after a second. Pasted
documents are left out, for one of them would be a twentieth of the whole measurement; their 2% is in LOAD.
The burst always runs the default settings: a rate belongs to a machine, and fixes are compared at one rate.

LOAD is where the mean of the swelling rate lies below that capacity. Its peaks (1.6 times the mean) go past it,
its troughs let the queues drain. On a modelled clock with measured costs, 60 s of seeds 1 to 5 each:

    load   preemptions   eager steps   largest batch   last request done
    0.65        0-316        12-286           34-38            60-66 s
    0.70        0-493         0-1792          26-48            60-68 s
    0.75      103-472       639-2117          41-48            63-67 s
    0.80      152-642      1050-2388          42-45            63-76 s
    0.90      462-587      1510-2257          41-47            73-79 s

0.75 is the first at which every seed meets every cause, and the last at which queues still drain at once.
"""

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
LOAD: Final = 0.75


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
