"""SGLang's steps: the loop's thread runs all of a step itself, and may process one's result after it ran the next.

So a wait for a CPU is looked for in three stretches of a step: up to its scheduling, through its forward pass, and in
the processing of its result, which in the overlap loop lie apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from stallbook.adapters.device import Track
from stallbook.adapters.steps import Flight, Steps
from stallbook.record.spool import NO_NAME

__all__ = ["Overlapped"]

_NOTHING: Final = (0, 0)
_NO_DELAYS: Final = [(0,) * marks for marks in range(64)]


class Overlapped(Steps):
    """Steps whose thread was looked at three times each: after scheduling, after the forward pass, at the end.

    A flight's `stretch` holds all three, each how long it was and the CPU time in it.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.decode = self.recorder.name("decode")

    def planned(self, step: int, t0: int, t1: int, cpu: int, track: Track | None) -> None:
        """A step was scheduled in [t0, t1), when the thread's CPU time was `cpu`."""
        self.scheduled(step, t0, t1, track)
        flight, stretch = self.flights[-1], self._look(t1, cpu)
        busy = flight.begun < t0  # since the last look
        flight.stretch = (*stretch, *_NOTHING, *_NOTHING) if busy else (*_NOTHING,) * 3

    def ran(self, step: int, t: int, cpu: int, graph: tuple[int, int]) -> None:
        """The forward pass of a step returned at `t`."""
        stretch = self._look(t, cpu)
        for flight in reversed(self.flights):
            if flight.step == step:
                flight.graph = graph
                flight.stretch = (*flight.stretch[:2], *stretch, *_NOTHING)
                return

    def _looked_last(self, flight: Flight, looked: tuple[int, int]) -> None:
        flight.stretch = (*flight.stretch[:4], *looked)

    def dropped(self, step: int, t1: int, cpu: int) -> None:
        """A step ran for nobody that is recorded."""
        for flight in [one for one in self.flights if one.step == step]:
            self.flights.remove(flight)
        self._look(t1, cpu)

    def rests(self) -> None:
        """Nothing is under way, so that no segment covers what comes next."""
        if not self.flights:
            self.last = -1

    def _counters(self, done: Sequence[tuple[Flight, tuple[Any, ...]]], now: int) -> Iterable[Sequence[int]]:
        """The step's CPU time, and the run-queue delay of each of its marks since the one before."""
        if self.recorder.os_counters is None:
            return [()] * len(done)
        parts: list[tuple[int, ...]] = []
        for flight, _ in done:
            s = flight.stretch
            parts += (s[:2], s[2:4], s[4:])
        delays = self._aways.of(parts, now)
        waited = any(delays)
        return [
            self._placed(flight, told[2], told[3], delays[at : at + 3])
            if waited
            else (*_NO_DELAYS[len(told[3])], flight.stretch[1] + flight.stretch[3] + flight.stretch[5], 0)
            for at, (flight, told) in zip(range(0, 3 * len(done), 3), done, strict=True)
        ]

    @staticmethod
    def _placed(
        flight: Flight, names: Sequence[int], times: Sequence[int], delays: Sequence[int]
    ) -> Sequence[int]:  # fmt: skip
        """Each part's delay is its longest segments', none having more than its length; the last part's `output`'s."""
        cpu = max(flight.stretch[1] + flight.stretch[3] + flight.stretch[5], -1)
        if min(delays) < 0:
            return [*[-1] * len(times), cpu, -1]
        found = [0] * (len(times) + 1)
        up_to, through, found[-1] = delays
        scheduled = 2 if flight.begun < flight.sched0 else 1
        ran = names.index(NO_NAME) if NO_NAME in names else len(names) - 1  # beyond it, other steps'
        for delay, first, last in ((up_to, 0, scheduled), (through, scheduled, ran)):
            left = delay
            for length, i in sorted(((times[i + 1] - times[i], i) for i in range(first, last)), reverse=True):
                found[i + 1] += min(length, left)
                left -= min(length, left)
        return [*found[:-1], cpu, found[-1]]
