"""An engine's steps, from the stamps of a few hooks: what was scheduled, what ran, what it emitted, who was in it.

Steps are kept until they emit, in the order in which they were scheduled, so that several may be in flight. Who decodes
is followed from step to step: as long as the same requests do, and each gets one token, nothing is done per request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from stallbook.adapters.device import DeviceLane, Track
from stallbook.adapters.later import Aways
from stallbook.adapters.stamps import Stamps
from stallbook.record import WholeRecorder
from stallbook.record.spool import NO_NAME

__all__ = ["NO_GRAPH", "Flight", "Steps"]

NO_GRAPH: Final = (0, -1)
"""No captured path, no padded size."""


class Flight:
    """A step that was scheduled and has not emitted yet."""

    __slots__ = ("begun", "graph", "names", "sched0", "sched1", "step", "stretch", "times", "track", "windows")

    def __init__(
        self, step: int, begun: int, sched0: int, sched1: int, track: Track | None, windows: Sequence[bytes] = ()
    ) -> None:
        self.step, self.track, self.windows = step, track, windows
        self.begun, self.sched0, self.sched1 = begun, sched0, sched1
        self.names: list[int] = []
        """What the scopes stamped while it was the one that ran, and `times`, when."""
        self.times: list[int] = []
        self.graph = NO_GRAPH
        self.stretch: Any = (0, 0)
        """Of the thread's time in this step that a wait for a CPU would prolong: how long, and its CPU time."""


class Steps:
    """Writes steps to a recorder, some at a time: `begin`, then what happened in order, then `write`.

    apart: the forward pass runs in another process. handoff: what the time between the scheduler and the first stamp
    is called, if not by the layout. last: when the engine's thread did what the hooks saw last; -1
    while nothing is under way, so that no segment covers an idle engine. handles: of requests that are alive. batch:
    those that decode.
    """

    def __init__(
        self, recorder: WholeRecorder, handles: dict[str, int], stamps: Stamps, apart: bool, handoff: str = ""
    ) -> None:  # fmt: skip
        self.recorder, self.handles, self.stamps, self.apart = recorder, handles, stamps, apart
        self.loop, self.sched, self.output = (recorder.name(n) for n in ("loop", "sched", "output"))
        self.handoff = recorder.name(handoff or ("ipc" if apart else "dispatch"))
        self.batch: dict[str, int] = {}
        self.flights: deque[Flight] = deque()
        self.evicted: set[int] = set()
        self.last = -1
        self.device: DeviceLane | None = None
        self.graphs: deque[tuple[int, int, int]] = deque(maxlen=256)
        """Time, graph code and padded size of forward passes."""
        self._names: list[int] = []
        """What the scopes stamped, and `_times`, when; before `_at` it is some flight's."""
        self._times: list[int] = []
        self._at = 0
        self._looked = (0, 0)
        self._aways = Aways()
        self._done: list[tuple[Flight, tuple[Any, ...]]] = []

    def begin(self) -> None:
        """More is told from here on: collect what the scopes stamped."""
        if found := self.stamps.take():
            times, names = zip(*found, strict=True)
            self._times += times
            self._names += names

    def renew(self) -> None:
        """Another thread runs the loop from now on, and nothing is under way."""
        self._aways, self._looked, self.last = Aways(), (0, 0), -1
        self.flights.clear()
        for request in list(self.batch):
            self.another(request)

    def comes_again(self, request: str, flush: Callable[[], None]) -> None:
        """One of that name comes in: if the one before it is done, it is another. `flush` tells all so far."""
        if request in self.handles or request in self.batch:
            flush()
            if request not in self.handles:
                self.another(request)

    def another(self, request: str) -> None:
        """One of that name is done, and the next one of that name is another."""
        handle = self.batch.pop(request, None)
        if handle is not None:
            self.batch[f"{request}\n{handle}"] = handle  # until the next step, where it leaves

    def scheduled(
        self, step: int, t0: int, t1: int, track: Track | None = None, cpu: int = 0, windows: Sequence[bytes] = ()
    ) -> None:
        """Another step was scheduled in [t0, t1). cpu: the thread's CPU time then, if `apart`.

        windows: of what has a name of its own inside (`WholeRecorder.host_window`).
        """
        self._collect(t0)
        begun = self.last if 0 <= self.last <= t0 else t0
        flight = Flight(step, begun, t0, t1, track, windows)
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
        self, step: int, t: int, t1: int, cpu: int, scheduled: Mapping[str, int], total: int,
        tokens: Mapping[str, int], decoding: int = -1,
    ) -> None:  # fmt: skip
        """A step emitted at `t`, and was done with at `t1`, when the thread's CPU time was `cpu`.

        scheduled: tokens of each request in its batch, `total` in all. tokens: of those that got some, how
        many each. decoding: how many of the scheduled ones were decoded, where the engine tells; else those of
        requests that got tokens in the step before.
        """
        flight = self._lands(step, t)
        if flight is None:
            return
        if total == len(tokens) == len(scheduled) and scheduled.keys() == self.batch.keys():
            self._emits(flight, t, t1, cpu, total, 0, True, self._tail(flight, t))
            return
        prefill, everyone, tail = self._settle(scheduled, tokens, self._windows(flight, t))
        decode = total - prefill if decoding < 0 else decoding
        self._emits(flight, t, t1, cpu, decode, total - decode, everyone, tail)

    def _lands(self, step: int, t: int) -> Flight | None:
        """The flight of a step, which emits at `t`. Those that were scheduled before it never emitted."""
        self._collect(t)
        flights = self.flights
        while flights and flights[0].step < step:
            flights.popleft()
        return flights.popleft() if flights and flights[0].step == step else None

    def _emits(
        self, flight: Flight, t: int, t1: int, cpu: int, decode: int, prefill: int, everyone: bool, tail: bytes
    ) -> None:  # fmt: skip
        names, times = self._segments(flight, t)
        self._looked_last(flight, self._look(t1, cpu))
        self._done.append((flight, (t1, t, names, times, decode, prefill, everyone, tail)))
        self.last = t1

    def _tail(self, flight: Flight, t: int) -> bytes:
        """Of a step whose batch is the last one's: what the device did, if there is one."""
        if flight.track is None and not flight.windows:
            return b""
        return self.recorder.tail(windows=self._windows(flight, t))

    def write(self, now: int, blocked: int = -1) -> None:
        """Write the steps that emitted since the last time. blocked: what keeps the first waiting request out, now."""
        done = self._done
        for (flight, told), ends in zip(done, self._counters(done, now), strict=True):
            t1, t, names, times, decode, prefill, everyone, tail = told
            self.recorder.step(
                flight.step, flight.begun, t1, t, names, times, ends, decode, prefill, everyone, *flight.graph,
                blocked, tail,
            )  # fmt: skip
        done.clear()
        seen = self._at if self.flights else None
        del self._names[:seen], self._times[:seen]
        self._at = 0

    def _counters(self, done: Sequence[tuple[Flight, tuple[Any, ...]]], now: int) -> Iterable[Sequence[int]]:
        """What the OS counted, of each step that is to be written."""
        delays = self._aways.of([flight.stretch for flight, _ in done], now)
        for (flight, (_, _, _, times, *_)), delay in zip(done, delays, strict=True):
            yield self._ends(flight, len(times), max(flight.stretch[1], -1), delay)

    def _ends(self, flight: Flight, marks: int, cpu: int, delay: int) -> Sequence[int]:
        """The thread's CPU time in a step and its run-queue delay: as a total, or for each mark since the one before.

        While another process works on the step, this thread waits, and may well wait for a CPU: that costs nothing.
        """
        if not self.apart:
            return cpu, delay
        delays = [0] * (marks + 2)
        delays[-2] = cpu
        loop = flight.sched0 - flight.begun
        delays[1] = min(delay, loop) if loop else delay
        delays[2] = delay - delays[1]
        return delays

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

    def _windows(self, flight: Flight, t: int) -> list[bytes]:
        """Windows of the host's, and what the device did for a step that emitted, so that it is done."""
        if flight.track is None or self.device is None:
            return list(flight.windows)
        found = self.device.windows(flight.track, t) or ()
        return [*flight.windows, *(self.recorder.device_window(*window) for window in found)]

    def _settle(
        self, scheduled: Mapping[str, int], tokens: Mapping[str, int], windows: list[bytes]
    ) -> tuple[int, bool, bytes]:  # fmt: skip
        """Follow a batch that changed, or in which not everyone got one token. First: tokens of who is new in it."""
        batch, handles = self.batch, self.handles
        changes: list[int] = []
        members: list[int] = []
        prefill = unknown = 0
        for request in [one for one in scheduled if one not in batch]:
            prefill += scheduled[request]
            handle = handles.get(request)
            if handle is None:
                unknown += 1
                continue
            if request in tokens:
                batch[request] = handle
                changes.append(handle << 1)
            else:
                members.append(handle)
        if len(batch) + len(members) + unknown != len(scheduled):
            changes += [batch.pop(request) << 1 | 1 for request in [one for one in batch if one not in scheduled]]
        everyone = len(tokens) == len(batch) == sum(tokens.values()) and tokens.keys() == batch.keys()
        pairs: list[int] = []
        if not everyone:
            for request, count in tokens.items():
                if (handle := handles.get(request)) is not None:
                    pairs += (handle, count)
        return prefill, everyone, self.recorder.tail(changes, pairs, members, windows)

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

    def evict(self, request: str, lost: int, t: int, recompute: bool = True) -> None:
        """A request lost its cache, or was swapped out. Tokens of it that are in flight may still come."""
        handle = self.handles.get(request)
        if handle is not None:
            self.evicted.add(handle)
            self.recorder.evict(handle, recompute, lost, t)

    def finished(self, requests: Iterable[str], t: int) -> None:
        """Requests are done, or were given up."""
        for request in requests:
            handle = self.handles.pop(request, None)
            if handle is not None:
                self.evicted.discard(handle)
                self.recorder.finish(handle, t)
        if not self.handles:
            self.last = -1
