"""One run of the demonstrator with faults planted at random moments and of random lengths.

The load under it is calm: requests of a few prompt tokens, as many at once as a captured batch holds, a pool that
never runs dry, no automatic collections, nothing to tokenize. What a neighbour on this machine does besides, the
journal sees by its own clocks.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from stallbook.demo.engine import Engine
from stallbook.demo.history import CompactHistory
from stallbook.demo.machine import REAL_CLOCK, check_blas, describe
from stallbook.demo.model import Model, NumpyExecutor
from stallbook.demo.scheduler import Limits, Plan, State
from stallbook.demo.scheduler import plan as schedule
from stallbook.demo.summary import Stop
from stallbook.demo.tokenizer import encode, trained
from stallbook.demo.workload import make_text
from stallbook.inject.fault import Fault
from stallbook.inject.faults import FAULTS
from stallbook.inject.journal import Journal, Span
from stallbook.inject.machine import Competitor, Quota, UnavailableError, pin
from stallbook.inject.stage import PROMPT, Stage, Told, Watched
from stallbook.inject.task import Task
from stallbook.record import Recorder

__all__ = ["Injector", "Tick", "run"]

Tick = Callable[[int, int], None]
"""Faults planted, of how many."""

LIMITS: Final = Limits(kv_blocks=2000, max_num_seqs=48)
ROWS: Final = (14, 28)
"""Requests at once; a new number is drawn every second, so that the baseline sees several sizes."""
FITTING: Final = 24
"""A captured size."""
LASTS: Final = 14
"""Steps that such a batch has to last."""
READY: Final = 12
CALM_NS: Final = (60_000_000, 180_000_000)
"""Between two faults."""
WARM_NS: Final = 1_500_000_000
BALLAST: Final = 30_000
"""Objects that the collector has to walk: about 4 ms."""
TEXT_CHARS: Final = 400_000
SAY_NS: Final = 1_000_000_000


class Injector:
    """The engine's planner: keeps the load up, starts one fault after the other, and lets it change the plan."""

    def __init__(self, stage: Stage, task: Task, kinds: tuple[str, ...], stop: Stop, tick: Tick | None) -> None:
        self._stage, self._stop, self._tick = stage, stop, tick
        self._random = stage.random
        self._queue = [self._draw(kind) for kind in kinds for _ in range(task.faults)]
        self._random.shuffle(self._queue)
        self.total = len(self._queue)
        self.whole = False
        """Whether everything was planted."""
        self._next = self._said = self._redrawn = 0
        self._rows = ROWS[0]

    def _draw(self, kind: str) -> tuple[type[Fault], int]:
        fault = FAULTS[kind]
        low, high = math.log(fault.low_ms), math.log(fault.high_ms)
        return fault, int(math.exp(self._random.uniform(low, high)) * 1e6)

    def __call__(self, state: State, limits: Limits) -> Plan:
        """Plan a step. Called inside the scheduling segment."""
        stage = self._stage
        now = stage.journal.mark()
        if not self._next:
            self._next = stage.journal.start = now + WARM_NS
        if stage.active is None:
            self._calm(state, now)
        fault = stage.active
        if fault is not None and not fault.step():
            self._over()
        return schedule(state, limits) if stage.active is None else stage.active.plan(state, limits)

    def _calm(self, state: State, now: int) -> None:
        stage = self._stage
        if now - self._redrawn > 1_000_000_000:
            self._rows, self._redrawn = self._random.randint(*ROWS), now
        ready = now >= self._next
        if self._tick is not None and now - self._said > SAY_NS and not ready:  # far from any fault
            self._said = now
            self._tick(self.total - len(self._queue), self.total)
        fits = bool(self._queue) and self._queue[-1][0].fits
        if stage.engine.load < (FITTING if ready and fits else self._rows):
            stage.offer(PROMPT, min(400, 20 + int(self._random.expovariate(1 / 150))))
        if not ready:
            return
        if not self._queue:
            self.whole = True
            self._stop.request()
        elif self._settled(state) and (not fits or self._fits(state)):
            kind, length = self._queue.pop()
            stage.active = kind(stage, length)

    def _settled(self, state: State) -> bool:
        arrived = self._stage.engine.counts.arrived == self._stage.offered
        return arrived and not state.waiting and len(state.running) >= READY

    @staticmethod
    def _fits(state: State) -> bool:
        """A captured batch without padding, none of which is about to finish."""
        left = [seq.max_new - seq.generated for seq in state.running]
        return len(left) == FITTING and min(left) > LASTS

    def _over(self) -> None:
        stage = self._stage
        stage.active = None
        self._next = stage.now() + self._random.randint(*CALM_NS)


def _arm(stage: Stage, kinds: tuple[str, ...], closing: ExitStack) -> dict[str, str]:
    """Prepare the faults that need the system's help; those that it refuses, and why."""
    refused: dict[str, str] = {}
    try:
        cpu = pin()
    except UnavailableError as why:
        return {kind: str(why) for kind in ("competitor", "quota") if kind in kinds}
    if "competitor" in kinds:
        try:
            stage.rival = Competitor(cpu)
        except (UnavailableError, OSError) as why:
            refused["competitor"] = str(why)
    if "quota" in kinds:
        try:
            stage.group = Quota()
            closing.callback(stage.group.close)
            if stage.rival is not None:
                stage.group.beside(stage.rival.pid)
        except UnavailableError as why:
            refused["quota"] = str(why)
    return refused


def run(task: Task, log: Path, truth: Path, stop: Stop, tick: Tick | None = None) -> dict[str, Any]:
    """Run it; leaves a log and the truth about it. Counts of what was done."""
    check_blas(1)
    trained()
    executor = NumpyExecutor(Model(), LIMITS.max_num_seqs)
    recorder = Recorder(log, engine="stallbook demo", config={"inject": task.seed, **describe()}, strict=True)
    journal = Journal(time.perf_counter_ns)
    names = {name: recorder.name(name) for name in ("sched", "compile", "adapter")}
    stage = Stage(journal, recorder, Random(f"faults {task.seed}"), names)
    stage.text = make_text(Random(f"document {task.seed}"), TEXT_CHARS)
    slices: list[Span] = []
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with ExitStack() as closing:
        closing.callback(recorder.close)
        refused = _arm(stage, task.kinds, closing)
        kinds = tuple(kind for kind in task.kinds if kind not in refused)
        injector = Injector(stage, task, kinds, stop, tick)
        stage.engine = Engine(
            [], LIMITS, executor=Watched(stage, executor), intake=Told(stage, encode), recorder=recorder,
            clock=REAL_CLOCK, history=CompactHistory(), stop=stop, planner=injector,
        )  # fmt: skip
        _serve(stage)
        if stage.rival is not None:
            slices = stage.rival.close()
    if allowed is not None:
        os.sched_setaffinity(0, allowed)
    found = journal.truth(slices, refused)
    found.save(truth)
    return {
        "planted": len(found.faults), "of": injector.total, "steps": stage.engine.counts.steps,
        "interrupted": not injector.whole,
    }  # fmt: skip


def _serve(stage: Stage) -> None:
    for _ in range(ROWS[0]):
        stage.offer(PROMPT, stage.random.randint(40, 300))
    gc.collect()
    gc.freeze()
    ballast = [{"i": i, "p": [i]} for i in range(BALLAST)]
    gc.disable()
    try:
        stage.start = stage.now()
        stage.engine.run()
    finally:
        gc.enable()
        gc.unfreeze()
        del ballast
