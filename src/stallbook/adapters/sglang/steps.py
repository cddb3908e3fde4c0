"""SGLang's steps: the loop's thread runs all of a step itself, and may process one's result after it ran the next.

So a wait for a CPU is looked for in two stretches of a step: up to the end of its forward pass, and in the processing
of its result, which in the overlap loop lie apart. A look costs 11 us behind a forward pass: there are no more of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from stallbook.adapters.device import Track
from stallbook.adapters.steps import Flight, Steps
from stallbook.record.spool import NO_NAME

__all__ = ["Overlapped"]

_NOTHING: Final = (0, 0)
_NONE: Final = [(0,) * marks for marks in range(64)]


class Overlapped(Steps):
    """Steps whose thread was looked at twice each: after the forward pass, and at the end.

    A flight's `stretch` holds both.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.decode = self.recorder.name("decode")

    def planned(self, step: int, t0: int, t1: int, cpu: int, track: Track | None) -> None:
        """A step was scheduled in [t0, t1). cpu: the thread's CPU time then, if it rested before; else -1."""
        self.scheduled(step, t0, t1, track)
        if cpu >= 0:
            self._look(t1, cpu)
        self.flights[-1].stretch = [_NOTHING, _NOTHING]

    def ran(self, step: int, t: int, cpu: int, graph: tuple[int, int]) -> None:
        """The forward pass of a step returned at `t`."""
        stretch = self._look(t, cpu)
        for flight in reversed(self.flights):
            if flight.step == step:
                flight.graph = graph
                flight.stretch[0] = stretch
                return

    def _looked_last(self, flight: Flight, looked: tuple[int, int]) -> None:
        flight.stretch[1] = looked

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
        stretches: list[tuple[int, int]] = []
        for flight, _ in done:
            stretches += flight.stretch
        delays, out = self._aways.of(stretches, now), list[Sequence[int]]()
        for i, (flight, told) in enumerate(done):
            through, last = flight.stretch
            cpu, waited = through[1] + last[1], delays[2 * i : 2 * i + 2]
            names, times = told[2:4]
            out.append(self._placed(flight, names, times, waited, cpu) if any(waited) else (*_NONE[len(times)], cpu, 0))
        return out

    @staticmethod
    def _placed(
        flight: Flight, names: Sequence[int], times: Sequence[int], delays: Sequence[int], cpu: int
    ) -> Sequence[int]:  # fmt: skip
        """Each part's delay is its longest segments', none having more than its length; the last part's `output`'s."""
        if min(delays) < 0:
            return [*[-1] * len(times), cpu, -1]
        found = [0] * (len(times) + 1)
        left, found[-1] = delays
        ran = names.index(NO_NAME) if NO_NAME in names else len(names) - 1  # beyond it, other steps'
        for length, i in sorted(((times[i + 1] - times[i], i) for i in range(ran)), reverse=True):
            found[i + 1] += min(length, left)
            left -= min(length, left)
        return [*found[:-1], cpu, found[-1]]
