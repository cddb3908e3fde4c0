"""What a hook sees is kept as it is, and worked off some steps at a time.

Behind a forward pass no cache is warm: code that takes 8 us in a loop took 100 to 200 once a step, measured in a
server. Sixteen steps at once take little more. So a hook reads the clock, appends a tuple, and is done. What was kept
is written before the engine rests, and at the latest after a quarter of a second: so much a SIGKILL in the midst of
work can cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from stallbook.adapters.hooks import Hooks
from stallbook.record import WholeRecorder
from stallbook.record.counters import RunDelay, available

__all__ = ["AWAY_NS", "Aways", "Later", "thread_cpu"]

AWAY_NS: Final = 500_000
"""A thread that was off the CPU for less than this is not asked why: the kernel's answer is a long call."""
_MOST: Final = 48
"""Entries: sixteen steps, and some."""
_LONGEST_NS: Final = 250_000_000
_CALL_NS: Final = 1_000
"""Of a hook what no clock inside it sees: its call, and the original's through it."""
_SAMPLED: Final = 32

thread_cpu = time.thread_time_ns


class Later:
    """Entries in the order in which they came. `append` is the list's own; `work` gets them all.

    When `work` fails the entries are gone, and the failure is counted: they would only fail again.
    """

    __slots__ = ("_clock", "_hooks", "_recorder", "_since", "_work", "append", "entries", "taken")

    def __init__(
        self, work: Callable[[list[Any]], None], recorder: WholeRecorder, hooks: Hooks, clock: Callable[[], int]
    ) -> None:  # fmt: skip
        self._work, self._recorder, self._hooks, self._clock = work, recorder, hooks, clock
        self.entries: list[Any] = []
        self.append = self.entries.append
        self._since = clock()
        self.taken = 0

    def added(self, since: int, now: int) -> None:
        """A hook that began at `since` appended its entry: work off what waits, if that is enough."""
        self.taken += 1
        if len(self.entries) >= _MOST or now - self._since > _LONGEST_NS:
            self.flush()
        elif self.taken % _SAMPLED == 0:
            self._recorder.spent(self._clock() - since + _CALL_NS, _SAMPLED)

    def flush(self) -> None:
        """Work off what waits. On the thread of the hooks."""
        start = thread_cpu()  # not the clock: the thread may be sent away meanwhile
        try:
            self._work(self.entries)
        except Exception:
            self._hooks.failed()
        self.entries.clear()
        self._since = self._clock()
        self._recorder.spent(thread_cpu() - start, 1, whole=True)


class Aways:
    """The run-queue delay of stretches of a thread's time, from how long it was off the CPU in each.

    A stretch in which it was away for less than `AWAY_NS` has none. Of the others none has more than it was away for,
    and together they have no more than the kernel counted since the last look.
    """

    __slots__ = ("_delays", "_known")

    def __init__(self) -> None:
        self._delays: RunDelay | None = None
        self._known = available()

    def of(self, stretches: Sequence[tuple[int, int]], now: int) -> Sequence[int]:
        """The delay of each (length, CPU time), in ns; -1 where the kernel does not count. On the thread itself."""
        if not self._known:
            return [-1] * len(stretches)
        if self._delays is None:
            self._delays = RunDelay()
            return [0] * len(stretches)
        aways = [length - used if length - used >= AWAY_NS else 0 for length, used in stretches]
        away = sum(aways)
        if not away:
            return aways
        counted = self._delays.delta(now)
        return aways if counted >= away else [counted * one // away for one in aways]
