"""SGLang's steps: the loop's thread runs all of a step itself, and may process one's result after it ran the next.

So a wait for a CPU is looked for in three stretches of a step: up to its scheduling, through its forward pass, and in
the processing of its result, which in the overlap loop lie apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from stallbook.adapters.steps import Flight, Steps
from stallbook.record.spool import NO_NAME

__all__ = ["Overlapped"]

_NOTHING: Final = (0, 0)
_NONE: Final = (_NOTHING,) * 3
_UP_TO, _THROUGH, _AFTER = range(3)


class Overlapped(Steps):
    """Steps whose thread was looked at three times each: after scheduling, after the forward pass, at the end."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.decode = self.recorder.name("decode")
        self._stretches: dict[int, list[tuple[int, int]]] = {}

    def looked(self, step: int, part: int, t: int, cpu: int, known: bool = True) -> None:
        """The thread's CPU time was `cpu` at `t`, the end of that part of a step. known: busy since the last look."""
        (before, used), self._looked = self._looked, (t, cpu)
        parts = self._stretches.get(step)
        if parts is None:
            parts = self._stretches[step] = list(_NONE)
        if known:
            parts[part] = t - before, cpu - used

    def ran(self, step: int, t: int, cpu: int, graph: tuple[int, int]) -> None:
        """The forward pass of a step returned at `t`."""
        self.looked(step, _THROUGH, t, cpu)
        for flight in self.flights:
            if flight.step == step:
                flight.graph = graph

    def planned(self, step: int, t0: int, t1: int, cpu: int, track: Any) -> None:
        """A step was scheduled in [t0, t1)."""
        self.scheduled(step, step, t0, t1, track)
        self.looked(step, _UP_TO, t1, cpu, known=self.flights[-1].begun < t0)

    def processed(self, step: int, t1: int, cpu: int) -> None:
        """The result of a step is processed."""
        self.looked(step, _AFTER, t1, cpu)

    def dropped(self, step: int) -> None:
        """A step ran for nobody."""
        for flight in [one for one in self.flights if one.step == step]:
            self.flights.remove(flight)

    def rests(self) -> None:
        """Nothing is under way, so that no segment covers what comes next."""
        if not self.flights:
            self.last = -1

    def _counters(self, done: Sequence[tuple[Flight, tuple[Any, ...]]], now: int) -> Iterable[Sequence[int]]:
        """The step's CPU time, and the run-queue delay of each of its marks since the one before."""
        if self.recorder.os_counters is None:
            return [()] * len(done)
        parts = [one for flight, _ in done for one in self._stretches.pop(flight.step, _NONE)]
        delays = self._aways.of(parts, now)
        if done:
            self._forget(done[-1][0].step)
        return [
            self._placed(flight, told[2], told[3], sum(used for _, used in parts[at : at + 3]), delays[at : at + 3])
            for at, (flight, told) in zip(range(0, 3 * len(done), 3), done, strict=True)
        ]  # fmt: skip

    def _forget(self, step: int) -> None:
        """Steps before this one that never emitted are not written."""
        for known in [one for one in self._stretches if one < step]:
            del self._stretches[known]

    @staticmethod
    def _placed(
        flight: Flight, names: Sequence[int], times: Sequence[int], cpu: int, delays: Sequence[int]
    ) -> Sequence[int]:  # fmt: skip
        """Each part's delay is its longest segments', none having more than its length; the last part's `output`'s."""
        found = [0] * (len(times) + 1)
        if not any(delays):
            return [*found[:-1], max(cpu, -1), 0]
        if min(delays) < 0:
            return [*[-1] * len(times), max(cpu, -1), -1]
        found[-1] = delays[_AFTER]
        scheduled = 2 if flight.begun < flight.sched0 else 1
        ran = names.index(NO_NAME) if NO_NAME in names else len(names) - 1  # beyond it, other steps'
        for delay, first, last in ((delays[_UP_TO], 0, scheduled), (delays[_THROUGH], scheduled, ran)):
            left = delay
            for length, i in sorted(((times[i + 1] - times[i], i) for i in range(first, last)), reverse=True):
                found[i + 1] += min(length, left)
                left -= min(length, left)
        return [*found[:-1], max(cpu, -1), found[-1]]
