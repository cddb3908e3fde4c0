"""What every kind of fault is."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from stallbook.demo.scheduler import Limits, Plan, State
from stallbook.demo.scheduler import plan as schedule
from stallbook.inject.stage import Stage
from stallbook.inject.task import KINDS

__all__ = ["EAGER", "Fault", "Pass"]

EAGER: Final = -1
"""Instead of a padded size: no captured size holds the batch."""
Pass = Callable[[], list[int]]


class Fault:
    """One fault. The runner calls `begin` once and `step` once a step, both inside the scheduling segment."""

    kind: ClassVar[str]
    low_ms: ClassVar[float] = 10.0
    high_ms: ClassVar[float] = 40.0
    """Its length is drawn from here, evenly on a logarithmic scale."""
    alone: ClassVar[bool] = True
    """Whether it leaves the forward pass alone."""
    fits: ClassVar[bool] = False
    """Whether it has to find a batch of exactly a captured size."""

    def __init__(self, stage: Stage, length_ns: int) -> None:
        self.stage, self.length = stage, length_ns
        self.entry = stage.journal.open(self.kind, KINDS[self.kind])
        self.began = stage.now()
        self.until = self.began + length_ns
        self.begin()

    def begin(self) -> None:
        """What happens first."""

    def step(self) -> bool:
        """Act once in this step; whether there is more to come."""
        return False

    def plan(self, state: State, limits: Limits) -> Plan:
        """What the engine does in this step."""
        return schedule(state, limits)

    def decode(self, run: Pass, rows: int, padded: int) -> list[int]:
        """The step's forward pass, of so many rows; `padded` is EAGER where no captured size holds them."""
        return run()

    def _spin(self, start: int) -> None:
        """Be busy for the fault's length; all from `start` on is planted."""
        end = self.stage.now() + self.length
        while (now := self.stage.now()) < end:
            pass
        self.entry.add(start, now)
