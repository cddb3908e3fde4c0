"""Recorders that ask the kernel how long the engine's thread waited for a CPU, at both ends of a step or at each mark.

A thread is switched out where a system call returns, and so within the looks themselves. Time lost there would lie
after the stamp: a look that took long is made again, and what ends here ends after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from stallbook.record.counters import SHORT_NS, PoolDelay, RunDelay
from stallbook.record.recorder import Recorder

__all__ = ["SegmentSampler", "StepSampler"]

AWAY_NS: Final = 50_000
"""A look that took longer was interrupted."""
_thread_time = time.thread_time_ns


def _looked(delays: RunDelay, t: int, clock: Callable[[], int], given: int | None) -> tuple[int, int]:
    """The delay up to `t`, and when it was taken: later than `t`, if that is no stamp that was given, where the look
    was interrupted.
    """
    delay = delays.delta(t)
    if given is None and (now := clock()) - t >= AWAY_NS:
        return delay + delays.delta(now), now
    return delay, t


class StepSampler(Recorder):
    """Reads the OS counters at both ends of a step. (`super()` would cost more than the calls do.)"""

    __slots__ = ()

    _short_ns = 0
    """Since the last look, for another one at the end of a step."""

    def begin(self, step: int = -1, t: int | None = None) -> int:
        """As without counters, and the CPU time and the run-queue delay count from here."""
        given, clock = t, self._clock
        if t is None:
            t = clock()
        try:
            delays = self._delays
            if delays is None:  # made here, on the thread that it is to measure
                delays = self._delays = PoolDelay() if self._pool else RunDelay()
            between = t - self._ended
            if 0 <= between < SHORT_NS:
                self._cpu += between
            else:
                self._cpu = _thread_time()
                _, t = _looked(delays, t, clock, given)  # what was lost until now was lost before the step
        except Exception:
            self._failed()
        return Recorder.begin(self, step, t)

    def look(self) -> None:
        """A look that only counts: which of the threads waited since the last one."""
        try:
            if self._delays is not None:
                self._delays.look(self._clock())
        except Exception:
            self._failed()

    def end(
        self, graph: int = 0, padded: int = -1, decode_tokens: int = -1, kv_tokens: int = -1, t: int | None = None,
        members: bool = True, blocked: int = -1,
    ) -> int:  # fmt: skip
        """As without counters, after a look at them."""
        given, clock = t, self._clock
        if self._flags < 0:
            return t or clock()
        try:
            cpu = _thread_time()  # first: it is here that the kernel sees that the thread's time slice is used up
            if t is None:
                t = clock()
            delays = self._delays
            delay = 0
            if delays and t - delays.at >= self._short_ns:
                delay, t = _looked(delays, t, clock, given)
            self._times += (*self._waits, max(cpu - self._cpu, 0), delay)
            self._waits.clear()
            self._cpu = cpu
            self._ended = t
        except Exception:
            self._failed()
        return Recorder.end(self, graph, padded, decode_tokens, kv_tokens, t, members, blocked)


class SegmentSampler(StepSampler):
    """Reads them at each mark too, but for marks that follow the last look closely."""

    __slots__ = ()

    _short_ns = SHORT_NS

    def enter(self, name: int, request: int = -1, t: int | None = None) -> None:
        """`Recorder.enter` again, since a call costs as much as it does, after a look at the counters."""
        try:
            given, clock = t, self._clock
            if t is None:
                t = clock()
            delays: Any = self._delays
            wait = 0
            if delays and t - delays.at >= SHORT_NS:
                wait, t = _looked(delays, t, clock, given)
            self._times.append(t)
            self._sequence.append(name)
            self._waits.append(wait)
            if request >= 0:
                self._owners += (len(self._times) - 1, request)
                self._unusual = True
        except Exception:
            self._failed()
