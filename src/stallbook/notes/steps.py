"""An engine's steps, from the stamps of a few hooks: what was scheduled, what ran, what it emitted, who was in it.

Steps are kept until they emit, in the order in which they were scheduled, so that several may be in flight. Who decodes
is followed from step to step: as long as the same requests do, and each gets one token, nothing is done per request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from stallbook.notes import delays
from stallbook.notes.records import Records
from stallbook.record.spool import NO_NAME

__all__ = ["NO_GRAPH", "Emission", "Flight", "Steps"]

NO_GRAPH: Final = (0, -1)
"""No captured path, no padded size."""


class Emission(NamedTuple):
    """Tokens that were scheduled for each request, all of them, and how many each got."""

    scheduled: Mapping[int, int]
    total: int
    tokens: Mapping[int, int]


class Flight:
    """A step that was scheduled and has not emitted yet."""

    __slots__ = ("begun", "graph", "names", "sched0", "sched1", "step", "stretch", "times")

    def __init__(self, step: int, begun: int, sched0: int, sched1: int) -> None:
        self.step = step
        self.begun, self.sched0, self.sched1 = begun, sched0, sched1
        self.names: list[int] = []
        """What the scopes stamped while it was the one that ran, and `times`, when."""
        self.times: list[int] = []
        self.graph = NO_GRAPH
        self.stretch: Any = (0, 0)
        """Of the thread's time in this step that a wait for a CPU would prolong: how long, and its CPU time."""


class Steps:
    """Tells steps to `Records`, some at a time: `stamped`, then what happened in order, then `write`.

    apart: the forward pass runs in another process. handoff: what the time between the scheduler and the first stamp
    is called. last: when the engine's thread did what was noted last; -1 while nothing is under way, so that no segment
    covers an idle engine. Requests go by their handles, one that was never recorded by a number below zero. alive: who
    arrived and is not done. batch: those that decode.
    """

    def __init__(self, records: Records, apart: bool, handoff: str) -> None:
        self.records, self.apart = records, apart
        self.loop, self.sched, self.output, self.handoff = (
            records.names[name] for name in ("loop", "sched", "output", handoff)
        )
        self.alive: set[int] = set()
        self.batch: set[int] = set()
        self.flights: deque[Flight] = deque()
        self.evicted: set[int] = set()
        self.last = -1
        self.graphs: deque[tuple[int, int, int]] = deque(maxlen=256)
        """Time, graph code and padded size of forward passes."""
        self.windows: dict[int, list[bytes]] = {}
        """What else is known of steps that have not emitted: windows, of the host's and of a device's."""
        self._names: list[int] = []
        """What the scopes stamped, and `_times`, when; before `_at` it is some flight's."""
        self._times: list[int] = []
        self._at = 0
        self._looked = (0, 0)
        self._done: list[tuple[Flight, tuple[Any, ...]]] = []

    def stamped(self, found: Iterable[tuple[int, int]]) -> None:
        """More is told from here on: what the scopes stamped meanwhile, as (time, name), in order."""
        for t, name in found:
            self._times.append(t)
            self._names.append(name)

    def renew(self) -> None:
        """Another thread runs the loop from now on, and nothing is under way."""
        self._looked, self.last = (0, 0), -1
        for known in (self.flights, self.windows, self.alive):
            known.clear()

    def lost(self) -> None:
        """What was under way is not known."""
        self._looked, self._at, self.last = (0, 0), 0, -1
        for waiting in (self.flights, self.windows, self.graphs, self._names, self._times, self._done):
            waiting.clear()

    def scheduled(self, step: int, t0: int, t1: int, cpu: int = 0) -> None:
        """Another step was scheduled in [t0, t1). cpu: the thread's CPU time then, if `apart`."""
        self._collect(t0)
        begun = self.last if 0 <= self.last <= t0 else t0
        flight = Flight(step, begun, t0, t1)
        if self.apart:
            flight.stretch = self._look(t1, cpu) if begun < t0 else (0, 0)
        self.flights.append(flight)
        self.last = t1

    def _look(self, t: int, cpu: int) -> tuple[int, int]:
        """The thread's CPU time was `cpu` at `t`: the stretch of time since the last look, and the CPU time in it."""
        (before, used), self._looked = self._looked, (t, cpu)
        return t - before, cpu - used

    def _looked_last(self, flight: Flight, looked: tuple[int, int]) -> None:
        """The look at the end of a step."""
        if not self.apart:
            flight.stretch = looked if flight.begun < flight.sched0 else (0, looked[1])

    def _collect(self, t: int) -> None:
        """What the scopes stamped before `t` is the flight's that was scheduled last."""
        times, since = self._times, self._at
        at = self._at = bisect_left(times, t, since)
        if at > since and self.flights:
            flight = self.flights[-1]
            first = bisect_left(times, flight.sched1, since, at)
            flight.names += self._names[first:at]
            flight.times += times[first:at]
            self.last = max(self.last, times[at - 1])
        while self.graphs and self.graphs[0][0] < t:
            _, *graph = self.graphs.popleft()
            if self.flights:
                self.flights[-1].graph = graph[0], graph[1]

    def emitted(
        self, step: int, t: int, t1: int, cpu: int, scheduled: Mapping[int, int], total: int,
        tokens: Mapping[int, int], decoding: int = -1,
    ) -> bool:  # fmt: skip
        """A step emitted at `t`, and was done with at `t1`, when the thread's CPU time was `cpu`.

        scheduled: tokens of each request in its batch, `total` in all. tokens: of those that got some, how
        many each. decoding: how many of the scheduled ones were decoded, where the engine tells; else those of
        requests that got tokens in the step before. Returns whether that step was under way.
        """
        flight = self._lands(step, t)
        if flight is None:
            return False
        if total == len(tokens) == len(scheduled) and scheduled.keys() == self.batch:
            self._emits(flight, t, t1, cpu, total, 0, True, self._tail(flight))
            return True
        prefill, everyone, tail = self._settle(scheduled, tokens, self.windows.pop(step, ()))
        decode = total - prefill if decoding < 0 else decoding
        self._emits(flight, t, t1, cpu, decode, total - decode, everyone, tail)
        return True

    def _lands(self, step: int, t: int) -> Flight | None:
        """The flight of a step, which emits at `t`. Those that were scheduled before it never emitted."""
        self._collect(t)
        flights = self.flights
        while flights and flights[0].step < step:
            self.windows.pop(flights.popleft().step, None)
        return flights.popleft() if flights and flights[0].step == step else None

    def _emits(
        self, flight: Flight, t: int, t1: int, cpu: int, decode: int, prefill: int, everyone: bool, tail: bytes
    ) -> None:  # fmt: skip
        names, times = self._segments(flight, t)
        self._looked_last(flight, self._look(t1, cpu))
        self._done.append((flight, (t1, t, names, times, decode, prefill, everyone, tail)))
        self.last = t1

    def _tail(self, flight: Flight) -> bytes:
        """Of a step whose batch is the last one's: its windows, if there are any."""
        windows = self.windows.pop(flight.step, None)
        return self.records.tail(windows=windows) if windows else b""

    def write(self, waited: int, blocked: int = -1) -> None:
        """Write the steps that emitted since the last time. waited: the thread's run-queue delay since then, or -1.
        blocked: what keeps the first waiting request out, now.
        """
        done = self._done
        for (flight, told), ends in zip(done, self._counters(done, waited), strict=True):
            t1, t, names, times, decode, prefill, everyone, tail = told
            self.records.step(
                flight.step, flight.begun, t1, t, names, times, ends, decode, prefill, everyone, *flight.graph,
                blocked, tail,
            )  # fmt: skip
        done.clear()
        seen = self._at if self.flights else None
        del self._names[:seen], self._times[:seen]
        self._at = 0

    def _counters(self, done: Sequence[tuple[Flight, tuple[Any, ...]]], waited: int) -> Iterable[Sequence[int]]:
        """What the OS counted, of each step that is to be written."""
        if self.records.os_counters is None:
            return [()] * len(done)
        found = delays.shared([flight.stretch for flight, _ in done], waited)
        return [
            self._ends(flight, len(told[3]), max(flight.stretch[1], -1), delay)
            for (flight, told), delay in zip(done, found, strict=True)
        ]

    def _ends(self, flight: Flight, marks: int, cpu: int, delay: int) -> Sequence[int]:
        """The thread's CPU time in a step and its run-queue delay: as a total, or for each mark since the one before.

        While another process works on the step, this thread waits, and may well wait for a CPU: that costs nothing.
        """
        if not self.apart:
            return cpu, delay
        ends = [0] * (marks + 2)
        ends[-2] = cpu
        loop = flight.sched0 - flight.begun
        ends[1] = min(delay, loop) if loop else delay
        ends[2] = delay - ends[1]
        return ends

    def _segments(self, flight: Flight, t: int) -> tuple[list[int], list[int]]:
        """Names and times of the step's segments, from the stamps of its hooks and scopes."""
        names, times = [self.sched, self.handoff, *flight.names], [flight.sched0, flight.sched1, *flight.times]
        if flight.begun < flight.sched0:
            names.insert(0, self.loop)
            times.insert(0, flight.begun)
        if times[-1] < self.last < t:  # the engine did other things before it waited for this step
            names += (NO_NAME, self.handoff)
            times += (times[-1], self.last)
        names.append(self.output)
        times.append(t)
        return names, times

    def _settle(
        self, scheduled: Mapping[int, int], tokens: Mapping[int, int], windows: Sequence[bytes]
    ) -> tuple[int, bool, bytes]:
        """Follow a batch that changed, or in which not everyone got one token. First: tokens of who is new in it."""
        batch = self.batch
        changes: list[int] = []
        members: list[int] = []
        prefill = unknown = 0
        for request in [one for one in scheduled if one not in batch]:
            prefill += scheduled[request]
            if request < 0:
                unknown += 1
            elif request in tokens:
                batch.add(request)
                changes.append(request << 1)
            else:
                members.append(request)
        if len(batch) + len(members) + unknown != len(scheduled):
            left = [one for one in batch if one not in scheduled]
            batch.difference_update(left)
            changes += [one << 1 | 1 for one in left]
        everyone = len(tokens) == len(batch) == sum(tokens.values()) and tokens.keys() == batch
        pairs: list[int] = []
        if not everyone:
            for request, count in tokens.items():
                if request >= 0:
                    pairs += (request, count)
        return prefill, everyone, self.records.tail(changes, pairs, members, windows)

    def admitted(self, requests: Iterable[int], t: int) -> None:
        """Requests were scheduled: for the first time, or again after an eviction."""
        for request in requests:
            if request < 0:
                continue
            if request in self.evicted:
                self.evicted.discard(request)
                self.records.readmit(request, t)
            else:
                self.records.admit(request, t)

    def evict(self, request: int, lost: int, t: int, recompute: bool = True) -> None:
        """A request lost its cache, or was swapped out. Tokens of it that are in flight may still come."""
        if request >= 0:
            self.evicted.add(request)
            self.records.evict(request, recompute, lost, t)

    def finished(self, requests: Collection[int], t: int) -> None:
        """Requests are done, or were given up."""
        for request in requests:
            if request >= 0:
                self.alive.discard(request)
                self.evicted.discard(request)
                self.records.finish(request, t)
        if not self.alive:
            self.last = -1
