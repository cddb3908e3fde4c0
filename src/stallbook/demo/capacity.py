"""`--rate auto`: how fast is this machine, and which arrival rate puts it where stalls happen?

A burst keeps 32 requests in flight, the largest captured batch, for five seconds of the workload's own mix on
the engine itself: tokenizer, prefill, evictions, collector and all, since the forward pass alone promises far
more than the engine delivers. The first second fills the batch and warms up; of the rest, the median
quarter-second is the capacity, so that one collection or one neighbour does not set the rate. The burst starts
in the steady state: output lengths are exponential, which has no memory, so requests finish at their steady rate
from the start; the first prompts are longer by what a request in mid-answer has already written, since short
contexts alone promise far too much; and lengths are evenly spaced quantiles, so that no lucky draw decides. Pasted
documents are left out (one would be a twentieth of the measurement); their 2% is in LOAD. The burst always
runs the default settings: a rate belongs to a machine, and fixes are compared at one rate.

LOAD is where the mean of the swelling rate lies in that capacity. Peaks (1.6 times the mean) go past it, troughs
let the queues drain. On a modelled clock with measured costs, 60 s each of seeds 1 to 5:

    load   preemptions   eager steps   largest batch   last request done
    0.70         0-173        36-685           34-42             60-66 s
    0.74         1-202        25-625           34-42             60-64 s
    0.78        15-344       88-1067           37-46             60-70 s
    0.82       137-383      481-1239           41-45             63-71 s
    0.86       240-447      989-1782           42-46             66-78 s

0.78 is the first at which every seed is preempted more than a handful of times, with queues that still drain.
The table is the model's; real runs around it scatter by what the machine does in the minute after the burst
(the log keeps the probe of both).
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Final

from stallbook.demo.engine import Engine
from stallbook.demo.history import History
from stallbook.demo.ports import Clock, Executor, Intake, Recorder, SpeedProbe
from stallbook.demo.scheduler import Limits
from stallbook.demo.summary import Stop
from stallbook.demo.workload import MEAN_NEW, make_burst

__all__ = ["BURST_S", "LOAD", "Capacity", "arrival_rate", "measure"]

BURST_S: Final = 5.0
WARM_S: Final = 1.0
WINDOW_S: Final = 0.25
BURST_ROWS: Final = 32
BURST_REQUESTS: Final = 256
LOAD: Final = 0.78


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the burst found. `spread` is (third - first quartile) / median over the windows."""

    tokens_per_s: float
    spread: float
    windows: int
    probe_ns: int = -1
    """Median probe during the burst: how fast the machine was while its capacity was measured."""


def arrival_rate(capacity: Capacity, load: float = LOAD) -> float:
    """Requests a second whose mean output asks for `load` of the capacity; to two digits after the point."""
    return max(0.01, round(load * capacity.tokens_per_s / MEAN_NEW, 2))


def measure(
    *, executor: Executor, intake: Intake, recorder: Recorder, clock: Clock, history: History,
    probe: SpeedProbe | None = None, stop: Stop | None = None, seconds: float = BURST_S,
) -> Capacity:  # fmt: skip
    """Keep a fixed number of requests in flight for a while and take the median rate of the windows."""
    kept = _Kept(probe) if probe else None
    engine = Engine(
        [], replace(Limits(), max_num_seqs=BURST_ROWS), executor=executor, intake=intake, recorder=recorder,
        clock=clock, history=history, probe=kept,
    )  # fmt: skip
    supply = cycle(make_burst(BURST_REQUESTS, BURST_ROWS))
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
    return _summarise(rates, kept.samples if kept else [])


def _summarise(rates: list[float], probes: list[int]) -> Capacity:
    probe_ns = round(statistics.median(probes)) if probes else -1
    if len(rates) < 2:
        return Capacity(statistics.fmean(rates) if rates else 0.0, 0.0, len(rates), probe_ns)
    low, middle, high = statistics.quantiles(rates, n=4)
    return Capacity(middle, (high - low) / middle if middle else 0.0, len(rates), probe_ns)


class _Kept:
    """A probe whose samples are kept here, for the burst has no log."""

    def __init__(self, probe: SpeedProbe) -> None:
        self._probe, self.samples = probe, list[int]()

    def due(self, now_ns: int) -> bool:
        return self._probe.due(now_ns)

    def sample(self) -> int:
        self.samples.append(self._probe.sample())
        return self.samples[-1]
