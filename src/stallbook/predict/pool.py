"""Many simulations of one model, over the cores of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.spawn import get_executable
from typing import Any, Final

from stallbook.demo.settings import Settings
from stallbook.predict.model import AnyEngine
from stallbook.predict.outcome import Outcome, brief, outcome
from stallbook.predict.speed import Series, Waits
from stallbook.predict.vllm import VllmSettings

__all__ = ["Job", "Runner", "runner"]

WORTH: Final = 8
"""So many simulations take longer than a process takes to start."""


@dataclass(frozen=True)
class Job:
    """One simulation. speed, waits, level, draw: as `model.setup_of`. whole: its causes are wanted, too."""

    settings: Settings | VllmSettings
    level: float = 1.0
    draw: int | None = None
    whole: bool = False
    speed: Series | None = None
    waits: Waits | None = None

    def run(self, engine: AnyEngine) -> Outcome:
        """Simulate, and say what came of it."""
        settings: Any = self.settings  # of the engine's own kind
        more: dict[str, Any] = {} if self.waits is None else {"waits": self.waits}
        trail = engine.simulate(settings, speed=self.speed, level=self.level, draw=self.draw, **more)
        return outcome(trail.run()) if self.whole else brief(trail)


Runner = Callable[[Sequence[Job]], list[Outcome]]
"""Runs jobs and gives their outcomes in the same order."""

_engine: AnyEngine | None = None


def _start(engine: AnyEngine) -> None:
    global _engine
    _engine = engine


def _one(job: Job) -> Outcome:
    assert _engine is not None
    return job.run(_engine)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _starts() -> bool:
    """Whether this interpreter can be started once more: where it cannot, a pool waits for its workers for ever."""
    try:
        subprocess.run([get_executable(), "-c", ""], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@contextmanager
def runner(
    engine: AnyEngine, tick: Callable[[int], object] = lambda n: None, workers: int | None = None
) -> Iterator[Runner]:  # fmt: skip
    """What runs jobs of this engine. tick: told how many more are done. workers: by default one a core."""
    count = _cores() if workers is None else workers
    pool: list[ProcessPoolExecutor] = []

    def run(jobs: Sequence[Job]) -> list[Outcome]:
        if count < 2 or (not pool and (len(jobs) < WORTH or not _starts())):
            return _told((job.run(engine) for job in jobs), tick)
        if not pool:
            pool.append(ProcessPoolExecutor(count, get_context("spawn"), _start, (engine,)))
        return _told(pool[0].map(_one, jobs), tick)

    try:
        yield run
    finally:
        for one in pool:
            one.shutdown(cancel_futures=True)


def _told(found: Iterator[Outcome], tick: Callable[[int], object]) -> list[Outcome]:
    out = []
    for one in found:
        out.append(one)
        tick(1)
    return out
