"""Two ends of a log for the tests: a clock for the recorder, and a reader."""

from __future__ import annotations

from pathlib import Path

from stallbook.log.bundle import read_bundle
from stallbook.run import Run


class Clock:
    """Each read is `tick` later than the one before."""

    def __init__(self, now: int = 1_000, tick: int = 10) -> None:
        self.now, self.tick = now, tick

    def __call__(self) -> int:
        self.now += self.tick
        return self.now


def read(path: Path) -> Run:
    return read_bundle(path).finish()
