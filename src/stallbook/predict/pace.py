"""How fast a simulated machine is: the speed of a run over time, and what each step's noise adds to it.

The noise is what the laws and the probe left over of the recorded run, step by step: a factor, and the wait for a
core. It comes in the order in which it was recorded (the same moments of the same machine again), or in blocks drawn
at random: noise is alike from step to step, so single steps must not be drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.predict.speed import BIN_NS, Series
from stallbook.run import Ints

__all__ = ["Noise", "RunPace"]

BLOCK_NS: Final = 2_000_000_000
"""Length of a block that is drawn."""
LOOK_NS: Final = 5_000_000
"""How finely the recorded order is looked up."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """A row a step that decoded: when it began (from the start of the run), its factor, its wait for a core in ns.

    And a row a chunk of a prompt: when it began, and its factor.
    """

    t: Ints
    factor: Floats
    delay: Ints
    chunk_t: Ints
    chunk_factor: Floats

    @property
    def mean(self) -> float:
        """The factor on the run's whole time."""
        return float(self.factor.mean()) if len(self.factor) else 1.0


class RunPace:
    """A speed over time, times a level; and the noise of a run in its own order or, with a seed, in drawn blocks."""

    def __init__(
        self, speed: Series | None, noise: Noise, *, scale: float = 1.0, level: float = 1.0, draw: int | None = None
    ) -> None:
        """scale: a probe of so many ns is the speed 1. level: a factor on top. draw: the seed of the blocks."""
        self._speeds: list[float] = [level] if speed is None else (speed.values / scale * level).tolist()
        self._last = len(self._speeds) - 1
        self._factors: list[float] = noise.factor.tolist() or [1.0]
        self._delays: list[int] = noise.delay.tolist() or [0]
        self._start = _table(noise.t, noise.t)
        self._chunks: list[float] = noise.chunk_factor.tolist() or [1.0]
        self._chunk_start = _table(noise.chunk_t, noise.t)
        self._random = None if draw is None else Random(draw)
        self._ends = 0
        self._shift = 0

    def speed(self, t_ns: int) -> float:
        """See `Pace`."""
        row = t_ns // BIN_NS
        return self._speeds[min(self._last, row)]

    def step(self, number: int, t_ns: int) -> tuple[float, int]:
        """See `Pace`."""
        start = self._start
        at = start[self._place(t_ns) % len(start)]
        return self._factors[at], self._delays[at]

    def chunk(self, t_ns: int) -> float:
        """See `Pace`."""
        start = self._chunk_start
        return self._chunks[start[self._place(t_ns) % len(start)]]

    def _place(self, t_ns: int) -> int:
        """The moment of the recorded run whose noise this moment has."""
        if self._random is not None:
            if t_ns >= self._ends:
                span = len(self._start) * LOOK_NS
                self._shift = int(self._random.random() * max(span - BLOCK_NS, 1)) - t_ns
                self._ends = t_ns + BLOCK_NS
            t_ns += self._shift
        return t_ns // LOOK_NS


def _table(t: Ints, run: Ints) -> list[int]:
    """The row that was going on, or the last before, for every `LOOK_NS` of the run."""
    if not len(t):
        return [0]
    grid = np.arange(0, int(run[-1] if len(run) else t[-1]) + LOOK_NS, LOOK_NS)
    rows: list[int] = np.maximum(np.searchsorted(t, grid, side="right") - 1, 0).tolist()
    return rows
