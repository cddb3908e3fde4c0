"""An engine's steps, from the stamps of a few hooks: what was scheduled, what ran, what it emitted, who was in it.

Steps are kept until they emit, in the order in which they were scheduled, so that several may be in flight. Who decodes
is followed from step to step: as long as the same requests do, and each gets one token, nothing is done per request.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from stallbook.adapters.device import DeviceLane, Track
from stallbook.adapters.stamps import Stamps
from stallbook.record import WholeRecorder
from stallbook.record.spool import NO_NAME

__all__ = ["AWAY_NS", "NO_GRAPH", "SAMPLED", "Flight", "Steps", "thread_away"]

NO_GRAPH: Final = (0, -1)
"""No captured path, no padded size."""

AWAY_NS: Final = 500_000
"""A thread that was off the CPU for less than this in a step is not asked why: the kernel's answer is a long call."""
SAMPLED: Final = 32
"""One step in so many times its own hooks."""


class Flight:
    """A step that was scheduled and has not emitted yet."""

    __slots__ = ("away", "begun", "blocked", "graph", "marks", "output", "sched0", "sched1", "step", "track")

    def __init__(self, output: Any, step: int, begun: int, sched0: int, sched1: int, blocked: int) -> None:
        self.output, self.step, self.blocked = output, step, blocked
        self.begun, self.sched0, self.sched1 = begun, sched0, sched1
        self.marks: list[tuple[int, int]] = []
        self.graph = NO_GRAPH
        self.away = (-1, 0)
        self.track: Track | None = None


class Steps:
    """Writes steps to a recorder.

    apart: the forward pass runs in another process. last: when the engine's thread did what the hooks saw last; -1
    while nothing is under way, so that no segment covers an idle engine. handles: of requests that are alive. batch:
    those that decode.
    """

    def __init__(
        self, recorder: WholeRecorder, handles: dict[str, int], stamps: Stamps, clock: Callable[[], int], apart: bool
    ) -> None:  # fmt: skip
        self.recorder, self.handles, self.stamps, self.clock = recorder, handles, stamps, clock
        self.loop, self.sched, self.output = (recorder.name(n) for n in ("loop", "sched", "output"))
        self.apart = apart
        self.handoff = recorder.name("ipc" if apart else "dispatch")
        self.batch: dict[str, int] = {}
        self.flights: deque[Flight] = deque()
        self.evicted: set[int] = set()
        self.step = 0
        self.last = -1
        self.graph = NO_GRAPH
        """Of the forward pass that ran last."""
        self.device: DeviceLane | None = None
        self._usual: tuple[int, ...] = (self.loop, self.sched, self.handoff, self.output)
        self._pops: list[Callable[[], int]] = []
        self.away: Callable[[int], tuple[int, int]] = thread_away()

    def expect(self, names: Sequence[int]) -> None:
        """What the scopes stamp in a usual step, in order of time: such a step is written without a look at each."""
        self._usual = (self.loop, self.sched, self.handoff, *names, self.output)
        self._pops = [self.stamps.queue(name).popleft for name in names]

    def scheduled(self, output: Any, t0: int, t1: int, blocked: int = -1) -> Flight:
        """The scheduler made `output` for another step in [t0, t1)."""
        if self.flights:
            self._collect(self.flights[-1])
        else:
            self.stamps.clear()
        self.step += 1
        begun = self.last if 0 <= self.last <= t0 else t0
        flight = Flight(output, self.step, begun, t0, t1, blocked)
        self.flights.append(flight)
        self.last = t1
        if self.apart:
            flight.away = self.away(t1)
        return flight

    def _collect(self, flight: Flight) -> None:
        """What the scopes stamped since the step was scheduled is its own."""
        found = self.stamps.take()
        if found:
            flight.graph = self.graph
            flight.marks += [mark for mark in found if mark[0] >= flight.sched1]
            if found[-1][0] > self.last:
                self.last = found[-1][0]

    def emitted(
        self, output: Any, scheduled: Mapping[str, int], total: int, tokens: Callable[[], Mapping[str, int]],
        outputs: int, t: int, t1: int,
    ) -> None:  # fmt: skip
        """The step of `output` emitted at `t`, and was done with at `t1`.

        scheduled: tokens of each request in its batch, `total` in all. outputs: requests that got tokens; `tokens()`
        tells how many each, and is asked only where that is not one for each of the batch.
        """
        flights, batch = self.flights, self.batch
        usual = total == outputs == len(scheduled) and scheduled.keys() == batch.keys()
        first = flights[0] if len(flights) == 1 else None
        if usual and first is not None and first.output is output and self._emitted_usually(first, outputs, t, t1):
            flights.pop()
            return
        while flights and flights[0].output is not output:
            if not any(one.output is output for one in flights):
                return
            flights.popleft()  # it never emitted
        if not flights:
            return
        self._collect(flights[-1])
        flight = flights.popleft()
        if usual:
            decode, everyone, tail = outputs, True, b""
            if flight.track is not None:
                tail = self.recorder.tail(windows=self._windows(flight, t))
        else:
            decode, everyone, tail = self._settle(scheduled, tokens(), self._windows(flight, t))
        names, times = self._marks(flight, t)
        ends = self._ends(flight, len(times), t1)
        graph, padded = flight.graph
        self.recorder.step(
            flight.step, flight.begun, t1, t, names, times, ends, decode, total - decode, everyone, graph, padded,
            flight.blocked, tail,
        )  # fmt: skip
        self.last = t1

    def _emitted_usually(self, flight: Flight, rows: int, t: int, t1: int) -> bool:
        """Write a step in which nothing special happened. False, and nothing done, if something did."""
        queues = self.stamps.queues.values()
        pops = self._pops
        if sum(map(len, queues)) != len(pops) or flight.begun == flight.sched0 or flight.track is not None:
            return False
        try:
            times = [flight.begun, flight.sched0, flight.sched1, *[pop() for pop in pops], t]
        except IndexError:  # other stamps than usual, and now they are lost: what was between is handed over
            times = []
        if not times or times[3] < times[2]:
            self.stamps.clear()
            return False
        graph, padded = self.graph
        ends = self._ends(flight, len(times), t1)
        self.recorder.step(
            flight.step, flight.begun, t1, t, self._usual, times, ends, rows, 0, True, graph, padded, flight.blocked
        )  # fmt: skip
        self.last = t1
        return True

    def _ends(self, flight: Flight, marks: int, t1: int) -> Sequence[int]:
        """The thread's run-queue delay in a step, as a total or for each mark since the one before, and CPU time.

        While another process works on the step, this thread waits, and may well wait for a CPU: that costs nothing.
        """
        looked = self.away(t1)
        if not self.apart:
            return looked
        cpu, delay = flight.away
        delays = [0] * (marks + 2)
        delays[-2] = looked[0] + max(cpu, 0)
        if delay > 0:
            loop = flight.sched0 - flight.begun
            delays[1] = min(delay, loop) if loop else delay
            delays[2] = delay - delays[1]
        return delays

    def _marks(self, flight: Flight, t: int) -> tuple[list[int], list[int]]:
        """Names and times of the step's segments, from the stamps of its hooks and scopes."""
        names, times = [self.sched, self.handoff], [flight.sched0, flight.sched1]
        if flight.begun < flight.sched0:
            names.insert(0, self.loop)
            times.insert(0, flight.begun)
        for when, name in flight.marks:
            names.append(name)
            times.append(when)
        waited = self.last
        if times[-1] < waited < t:  # the engine did other things before it waited for this step
            names += (NO_NAME, self.handoff)
            times += (self._left(flight), waited)
        names.append(self.output)
        times.append(t)
        return names, times

    def _left(self, flight: Flight) -> int:
        """When the engine turned to other things than this step: where the next one's scheduling began."""
        return max(flight.marks[-1][0] if flight.marks else flight.sched1, flight.sched1)

    def _windows(self, flight: Flight, t: int) -> list[bytes]:
        """What the device did for a step that emitted, so that it is done."""
        if flight.track is None or self.device is None:
            return []
        found = self.device.windows(flight.track, t) or ()
        return [self.recorder.device_window(*window) for window in found]

    def _settle(
        self, scheduled: Mapping[str, int], tokens: Mapping[str, int], windows: list[bytes]
    ) -> tuple[int, bool, bytes]:  # fmt: skip
        """Follow a batch that changed, or in which not everyone got one token."""
        batch, handles = self.batch, self.handles
        changes: list[int] = []
        members: list[int] = []
        decode = 0
        for request, count in scheduled.items():
            if request in batch:
                decode += count
                continue
            handle = handles.get(request)
            if handle is None:
                continue
            if request in tokens:
                batch[request] = handle
                changes.append(handle << 1)
            else:
                members.append(handle)
        if len(batch) + len(members) != len(scheduled):
            changes += [batch.pop(request) << 1 | 1 for request in [one for one in batch if one not in scheduled]]
        everyone = len(tokens) == len(batch) == sum(tokens.values()) and tokens.keys() == batch.keys()
        pairs: list[int] = []
        if not everyone:
            for request, count in tokens.items():
                if (handle := handles.get(request)) is not None:
                    pairs += (handle, count)
        return decode, everyone, self.recorder.tail(changes, pairs, members, windows)

    def admitted(self, requests: Iterable[str], t: int) -> None:
        """Requests were scheduled: for the first time, or again after an eviction."""
        for request in requests:
            handle = self.handles.get(request)
            if handle is None:
                continue
            if handle in self.evicted:
                self.evicted.discard(handle)
                self.recorder.readmit(handle, t)
            else:
                self.recorder.admit(handle, t)

    def evict(self, request: str, lost: int, t: int) -> None:
        """A request lost its cache. Tokens of it that are in flight may still come."""
        handle = self.handles.get(request)
        if handle is not None:
            self.evicted.add(handle)
            self.recorder.evict(handle, True, lost, t)

    def finished(self, requests: Iterable[str], t: int) -> None:
        """Requests are done, or were given up."""
        for request in requests:
            handle = self.handles.pop(request, None)
            if handle is not None:
                self.evicted.discard(handle)
                self.recorder.finish(handle, t)
        if not self.handles:
            self.last = -1


def thread_away(clock: Callable[[], int] = time.perf_counter_ns) -> Callable[[int], tuple[int, int]]:
    """A function of now that tells, since its last call, the thread's CPU time and its run-queue delay, in ns.

    The CPU time is one short system call. Where it leaves less than `AWAY_NS` of the time there was no delay worth a
    look; else the kernel's count is read, and what it grew since the last look counts as far as the thread was away.
    """
    from stallbook.record.counters import RunDelay, available

    if not available():
        return lambda now: (-1, -1)
    state: list[Any] = [None, 0, 0]
    cpu_time = time.thread_time_ns

    def look(now: int) -> tuple[int, int]:
        delays, before, cpu_before = state
        cpu = cpu_time()
        state[1], state[2] = now, cpu
        used = cpu - cpu_before
        if delays is None:  # made here, on the thread that it is to measure
            state[0] = RunDelay()
            return -1, 0
        away = now - before - used
        if away < AWAY_NS:
            return used, 0
        return used, max(0, min(delays.delta(now), away))

    return look
