"""A run with planted faults on a clock that only work moves: the engine, the recorder and the journal share it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from stallbook.demo.engine import Engine
from stallbook.demo.history import CompactHistory
from stallbook.demo.ports import Clock
from stallbook.demo.summary import Stop
from stallbook.inject import Task
from stallbook.inject.journal import Journal
from stallbook.inject.runner import LIMITS, ROWS, Injector
from stallbook.inject.stage import Stage, Told, Watched
from stallbook.inject.truth import Truth
from stallbook.record import Recorder

US, MS = 1_000, 1_000_000


class TickingClock:
    """Each look takes a microsecond, so that a busy loop ends."""

    def __init__(self) -> None:
        self.t = 1_000_000_000

    def now(self) -> int:
        self.t += US
        return self.t

    def sleep(self, seconds: float) -> None:
        self.t += round(seconds * 1e9)


class Paced:
    """An executor that costs: prefill 20 us a token, a captured row 100 us, an eager row 190 us, a swap 100 us. Passes
    vary by a percent."""

    def __init__(self, clock: TickingClock) -> None:
        self.clock = clock
        self.random = Random(0)

    def _pass(self, ns: int) -> None:
        self.clock.t += int(ns * self.random.uniform(0.99, 1.01))

    def prefill(self, key: int, tokens: Sequence[int], start: int) -> None:
        self.clock.t += 20 * US * len(tokens)

    def decode(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int], padded: int) -> list[int]:
        self._pass(100 * US * padded)
        return [1] * len(keys)

    def decode_eager(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> list[int]:
        self._pass(190 * US * len(keys))
        return [1] * len(keys)

    def swap_out(self, key: int, tokens: int) -> None:
        self.clock.t += 100 * US

    def swap_in(self, key: int) -> None:
        self.clock.t += 100 * US

    def drop(self, key: int) -> None:
        pass


def rehearse(path: Path, monkeypatch: pytest.MonkeyPatch, task: Task) -> Truth:
    """Plant in a paced engine; leaves its log at `path`."""
    clock = TickingClock()
    recorder = Recorder(path, engine="paced", clock=clock.now, os_counters=None, gc_pauses=False)
    names = {name: recorder.name(name) for name in ("sched", "compile", "adapter")}
    stage = Stage(Journal(clock.now, lambda: clock.t), recorder, Random(task.seed), names, text="x" * 100_000)

    def collect() -> None:
        t0 = clock.now()
        clock.t += 5 * MS
        recorder.pause(t0, clock.now(), 2)

    def encode(text: str) -> list[int]:
        clock.t += US * len(text)
        return [1] * 100

    monkeypatch.setattr("stallbook.inject.faults.gc.collect", collect)
    stop = Stop()
    injector = Injector(stage, task, task.kinds, stop, None)
    stage.engine = Engine(
        [], LIMITS, executor=Watched(stage, Paced(clock)), intake=Told(stage, encode), recorder=recorder,
        clock=Clock(clock.now, clock.sleep), history=CompactHistory(), stop=stop, planner=injector,
    )  # fmt: skip
    for _ in range(ROWS[0]):
        stage.offer(16, stage.random.randint(40, 300))
    stage.start = clock.t
    stage.engine.run()
    recorder.close()
    assert injector.whole
    return stage.journal.truth([], {})
