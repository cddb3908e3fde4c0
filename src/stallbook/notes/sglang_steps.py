"""SGLang's steps: the loop's thread runs all of a step itself, and may process one's result after it ran the next.

A look at the thread's CPU time costs 11 us behind a forward pass, so there is one a pass of the loop, once a result is
processed. If the thread was away in that pass, it was so in the processing as far as that took longer than usual, and
else up to the end of the forward pass, which in the overlap loop is the next step's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from stallbook.notes import delays
from stallbook.notes.delays import AWAY_NS
from stallbook.notes.records import Records
from stallbook.notes.steps import Flight, Steps
from stallbook.record.spool import NO_NAME

__all__ = ["Overlapped"]

_NOTHING: Final = (0, 0)


class Overlapped(Steps):
    """Steps whose thread was looked at once a pass, at its end.

    A flight's `stretch` holds two: up to the end of its forward pass, and the processing of its result.
    """

    def __init__(self, records: Records) -> None:
        super().__init__(records, False, "dispatch")
        self._ran: Flight | None = None
        """Whose forward pass ran since the last look, right after it was scheduled."""
        self._entered = self._brief = 0
        """When the processing of the last result began; what it takes at most as long as nothing disturbs."""

    def planned(self, step: int, t0: int, t1: int, cpu: int) -> None:
        """A step was scheduled in [t0, t1). cpu: the thread's CPU time then, if it rested before; else -1."""
        self.scheduled(step, t0, t1)
        if cpu >= 0:
            self._look(t1, cpu)
        self._ran = self.flights[-1]
        self._ran.stretch = [_NOTHING, _NOTHING]

    def ran(self, step: int, graph: int, padded: int) -> None:
        """The forward pass of a step took this path."""
        if self._ran is not None and self._ran.step == step:
            self._ran.graph = graph, padded

    def repeated(self, step: int, t: int, t1: int, cpu: int) -> None:
        """As `emitted`, of the same requests as the step before, each of which got the one token scheduled for it."""
        flight = self._lands(step, t)
        if flight is not None:
            self._emits(flight, t, t1, cpu, len(self.batch), 0, True, self._tail(flight))

    def _lands(self, step: int, t: int) -> Flight | None:
        self._entered = t
        return super()._lands(step, t)

    def _looked_last(self, flight: Flight, looked: tuple[int, int]) -> None:
        ran, self._ran = self._ran, None
        length, cpu = looked
        took = min(self._looked[0] - self._entered, length)
        if ran is None:
            flight.stretch[1] = looked
        elif length - cpu < AWAY_NS:
            ran.stretch[0] = looked
            self._brief = max(took, self._brief * 7 // 8)
        else:
            longer = took - self._brief
            away = min(length - cpu, longer) if longer >= AWAY_NS else 0
            flight.stretch[1] = took, took - away
            ran.stretch[0] = length - took, cpu - (took - away)

    def dropped(self, step: int, t1: int, cpu: int) -> None:
        """A step ran for nobody that is recorded."""
        for flight in [one for one in self.flights if one.step == step]:
            self.flights.remove(flight)
        self.windows.pop(step, None)
        ran, self._ran = self._ran, None
        looked = self._look(t1, cpu)
        if ran is not None:
            ran.stretch[0] = looked

    def rests(self) -> None:
        """Nothing is under way, so that no segment covers what comes next."""
        if not self.flights:
            self.last = -1

    def _counters(self, done: Sequence[tuple[Flight, tuple[Any, ...]]], waited: int) -> Iterable[Sequence[int]]:
        """The step's CPU time, and the run-queue delay of each of its marks since the one before."""
        if self.records.os_counters is None:
            return [()] * len(done)
        stretches: list[tuple[int, int]] = []
        for flight, _ in done:
            stretches += flight.stretch
        found, out = delays.shared(stretches, waited), list[Sequence[int]]()
        for i, (flight, told) in enumerate(done):
            through, last = flight.stretch
            cpu, both = through[1] + last[1], found[2 * i : 2 * i + 2]
            names, times = told[2:4]
            none = *(0,) * len(times), cpu, 0
            out.append(self._placed(names, times, both, cpu) if any(both) else none)
        return out

    @staticmethod
    def _placed(names: Sequence[int], times: Sequence[int], both: Sequence[int], cpu: int) -> Sequence[int]:
        """Each part's delay is its longest segments', none having more than its length; the last part's `output`'s."""
        if min(both) < 0:
            return [*[-1] * len(times), cpu, -1]
        found = [0] * (len(times) + 1)
        left, found[-1] = both
        ran = names.index(NO_NAME) if NO_NAME in names else len(names) - 1  # beyond it, other steps'
        for length, i in sorted(((times[i + 1] - times[i], i) for i in range(ran)), reverse=True):
            found[i + 1] += min(length, left)
            left -= min(length, left)
        return [*found[:-1], cpu, found[-1]]
