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
        self.away: Callable[[int], tuple[int, int]] = thread_away()

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
        flights = self.flights
        while flights and flights[0].output is not output:
            if not any(one.output is output for one in flights):
                return
            flights.popleft()  # it never emitted
        if not flights:
            return
        self._collect(flights[-1])
        flight = flights.popleft()
        batch = self.batch
        if total == outputs == len(scheduled) and scheduled.keys() == batch.keys():
            decode, everyone, tail = outputs, True, b""
            if flight.track is not None:
                tail = self.recorder.tail(windows=self._windows(flight, t))
        else:
            decode, everyone, tail = self._settle(scheduled, tokens(), self._windows(flight, t))
        names, times = self._marks(flight, t)
        cpu, delays = self._delays(flight, times, t1)
        graph, padded = flight.graph
        self.recorder.step(
            flight.step, flight.begun, t1, t, names, times, decode=decode, prefill=total - decode, everyone=everyone,
            graph=graph, padded=padded, blocked=flight.blocked, cpu=cpu, delays=delays, tail=tail,
        )  # fmt: skip
        self.last = t1

    def _delays(self, flight: Flight, times: Sequence[int], t1: int) -> tuple[int, Sequence[int]]:
        """The thread's CPU time in a step, and its run-queue delay: as a total, or for each mark since the one before.

        While another process works on the step, this thread waits, and may well wait for a CPU: that costs nothing.
        """
        cpu, delay = self.away(t1)
        if not self.apart:
            return cpu, (delay,)
        before, delay = flight.away
        delays = [0] * (len(times) + 1)
        loop = flight.sched0 - flight.begun
        if loop > 0:
            delays[1], delays[2] = min(delay, loop), max(delay - loop, 0)
        else:
            delays[1] = delay
        return cpu + max(before, 0), delays

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
