"""What a hook sees is kept as it is, and worked off some steps at a time.

Behind a forward pass no cache is warm: to work off what was kept takes 0.4 ms, measured in servers, and hardly more for
forty steps than for four. So a hook reads the clock, appends a tuple, and is done. What was kept is written before the
engine rests, and at the latest after half a second: so much a SIGKILL in the midst of work can cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from stallbook.adapters.hooks import Hooks
from stallbook.record import WholeRecorder
from stallbook.record.counters import RunDelay, available

__all__ = ["AWAY_NS", "CALL_NS", "FEW", "LONG_NS", "Aways", "Later", "thread_cpu"]

AWAY_NS: Final = 500_000
"""A thread that was off the CPU for less than this is not asked why: the kernel's answer is a long call."""
FEW: Final = 92
"""Entries after which a hook takes a closer look: some forty steps."""
_MANY: Final = 96
LONG_NS: Final = 500_000_000
CALL_NS: Final = 2_000
"""Of a hook what no clock inside it sees: its call, the original's through it, and the first look at the clock."""
_LONGEST_NS: Final = 100_000
"""Two hooks that took longer were interrupted."""

thread_cpu = time.thread_time_ns


class Later:
    """Entries in the order in which they came. `append` is the list's own; `work` gets them all.

    When `work` fails the entries are gone, and the failure is counted: they would only fail again.
    others: hooks that leave no entry, of each step, which leaves two.
    """

    __slots__ = ("_calls", "_clock", "_first", "_hooks", "_last", "_recorder", "_work", "append", "entries", "since")

    def __init__(
        self, work: Callable[[list[Any]], None], recorder: WholeRecorder, hooks: Hooks, clock: Callable[[], int],
        others: int = 0,
    ) -> None:  # fmt: skip
        self._work, self._recorder, self._hooks, self._clock = work, recorder, hooks, clock
        self._calls = (2 + others) * CALL_NS
        self.entries: list[Any] = []
        self.append = self.entries.append
        self.since = clock()
        """When what waited was worked off last."""
        self._first = self._last = 0
        """What the hooks took that left the first entry and the last one."""

    def first(self, now: int) -> None:
        """To be called by a hook that began at `now` and left the only entry, if it is quicker than the others."""
        self._first = self._clock() - now

    def look(self, now: int) -> None:
        """To be called by a hook that began at `now`, once `len(entries)` is over `FEW` or `since` is `LONG_NS` ago."""
        self._last = self._clock() - now
        if len(self.entries) >= _MANY or now - self.since > LONG_NS:
            self.flush()

    def flush(self) -> None:
        """Work off what waits. On the thread of the hooks."""
        entries, start = self.entries, thread_cpu()  # not the clock: the thread may be sent away meanwhile
        recorder, events = self._recorder, self._recorder.events
        hooks = len(entries) * min((self._first or self._last) + self._last + self._calls, _LONGEST_NS) // 2
        try:
            self._work(entries)
        except Exception:
            self._hooks.failed()
        entries.clear()
        self.since = self._clock()
        recorder.spent(hooks + thread_cpu() - start, recorder.events - events)


class Aways:
    """The run-queue delay of stretches of a thread's time, from how long it was off the CPU in each.

    A stretch in which it was away for less than `AWAY_NS` has none. Of the others none has more than it was away for,
    and together they have no more than the kernel counted since the last look.
    """

    __slots__ = ("_delays", "_known")

    def __init__(self) -> None:
        self._delays: RunDelay | None = None
        self._known = available()

    def of(self, stretches: Sequence[tuple[int, ...]], now: int) -> Sequence[int]:
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
