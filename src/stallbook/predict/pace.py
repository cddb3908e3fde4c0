"""How fast a simulated machine is: the speed of a run over time, and what each step's noise adds to it.

The noise is what the laws and the speed left over of the recorded run, step by step: a factor. It is used up by work,
not by time: a recorded step that took four times its law lies under four times as many moments, so whatever looked it
up by the time would meet the slow steps too often, as soon as its steps are not the recorded ones.

It comes in the order in which it was recorded (the same moments of the same machine again), or in blocks drawn at
random: noise is alike from step to step, so single steps must not be drawn.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.predict.speed import BIN_NS, Series, Waits
from stallbook.run import Ints

__all__ = ["Noise", "RunPace"]

BLOCK_NS: Final = 2_000_000_000
"""So long the noise goes on in the order in which it was recorded; then a place for it is sought anew."""
STALL: Final = 2.0
"""What takes longer than so many times its law was held up: the rest is ns that do not grow with the work."""
CLOSE: Final = 1.0 - 1e-6
"""Work that is this much of a row's is the row's."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """A row a step that decoded: when it began (from the start of the run), and its factor; a row a chunk of a prompt.

    work: what their laws give them, in ns at the speed 1.
    """

    t: Ints
    factor: Floats
    chunk_t: Ints
    chunk_factor: Floats
    work: Floats
    chunk_work: Floats

    @property
    def mean(self) -> float:
        """The factor on the run's whole time."""
        return float(self.factor.mean()) if len(self.factor) else 1.0


class _Tape:
    """The noise of one kind of work, which is used up by work.

    Work gets the factor of the row that its middle falls on, up to `STALL`. What a row had beyond that are ns that come
    whole, to whatever covers the middle of the row.
    """

    def __init__(self, t: Ints, work: Floats, factor: Floats) -> None:
        usual = np.minimum(factor, STALL)
        self.work: list[float] = np.maximum(work, 1.0).tolist()
        self.factor: list[float] = usual.tolist()
        self.stall: list[float] = ((factor - usual) * work).tolist()
        self.starts, self.ends = t, t + np.rint(work * factor).astype(np.int64)
        self._at, self._used = 0, 0.0

    def place(self, t_ns: int) -> None:
        """Go on from this moment of the recorded run: from the row that begins nearest to it."""
        row = int(np.searchsorted(self.starts, t_ns, side="right")) - 1
        if row < 0 or 2 * t_ns > int(self.starts[row] + self.ends[row]):
            row += 1
        self._at, self._used = row % len(self.work), 0.0

    def take(self, work: float) -> float:
        """The factor on so much work."""
        left, middle = work, 0.5 * work
        usual, stall = -1.0, 0.0
        while True:
            at, whole = self._at, self.work[self._at]
            rest = whole - self._used
            part = rest if left > rest * CLOSE else left
            left -= part
            if usual < 0.0 and left <= middle:
                usual = self.factor[at]
            if self._used < 0.5 * whole <= self._used + part:
                stall += self.stall[at]
            if part < rest:
                self._used += part
                break
            self._at, self._used = (at + 1) % len(self.work), 0.0
            if left <= (1.0 - CLOSE) * work:
                break
        return usual + stall / work


class RunPace:
    """A speed over time, times a level; and the noise of a run in its own order or, with a seed, in drawn blocks."""

    def __init__(
        self, speed: Series | None, noise: Noise, waits: Waits | None = None, *, level: float = 1.0,
        draw: int | None = None,
    ) -> None:  # fmt: skip
        """level: a factor on top of the speed. draw: the seed of the blocks."""
        self._speeds: list[float] = [level] if speed is None else (speed.values * level).tolist()
        self._last = len(self._speeds) - 1
        self._steps = _tape(noise.t, noise.work, noise.factor)
        self._chunks = _tape(noise.chunk_t, noise.chunk_work, noise.chunk_factor)
        self._tapes = [tape for tape in (self._steps, self._chunks) if tape is not None]
        self._span = max([int(tape.ends[-1]) for tape in self._tapes], default=1)
        self._waits: list[int] = [] if waits is None else waits.t.tolist()
        self._waited: list[int] = [0] if waits is None else [0, *np.cumsum(waits.ns).tolist()]
        self._random = None if draw is None else Random(draw)
        self._ends = 0
        self._shift = 0

    def speed(self, t_ns: int) -> float:
        """See `Pace`."""
        return self._speeds[min(self._last, t_ns // BIN_NS)]

    def wait(self, since_ns: int, t_ns: int) -> int:
        """See `Pace`."""
        if not self._waits:
            return 0
        since = (since_ns + self._shift) % self._span if self._shift else since_ns
        upto = since + t_ns - since_ns
        return self._waited[bisect_left(self._waits, upto)] - self._waited[bisect_left(self._waits, since)]

    def step(self, t_ns: int, work: float) -> float:
        """See `Pace`."""
        return self._take(self._steps, t_ns, work)

    def chunk(self, t_ns: int, work: float) -> float:
        """See `Pace`."""
        return self._take(self._chunks, t_ns, work)

    def _take(self, tape: _Tape | None, t_ns: int, work: float) -> float:
        self._settle(t_ns)
        return 1.0 if tape is None or work <= 0 else tape.take(work)

    def _settle(self, t_ns: int) -> None:
        """Seek a place for the noise, once a block has ended."""
        if t_ns < self._ends:
            return
        self._ends = t_ns + BLOCK_NS
        if self._random is not None:
            self._shift = int(self._random.random() * self._span) - t_ns
        place = (t_ns + self._shift) % self._span
        for tape in self._tapes:
            tape.place(place)


def _tape(t: Ints, work: Floats, factor: Floats) -> _Tape | None:
    return _Tape(t, work, factor) if len(t) else None
