"""What a hook sees is kept as it is, and worked off some steps at a time.

Behind a forward pass no cache is warm: each line of Python costs ten times what it costs in a loop. So a hook reads the
clock, appends some numbers, and is done; what they mean is told where the log is read (`stallbook.notes`). What was
kept is written before the engine rests, and at the latest after half a second: so much a SIGKILL in the midst of work
can cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from stallbook.adapters.hooks import Hooks
from stallbook.record import WholeRecorder
from stallbook.record.counters import RunDelay, available

__all__ = ["CALL_NS", "FEW", "LONG_NS", "SAMPLED", "Later", "Waits", "thread_cpu"]

FEW: Final = 46
"""Steps after which a hook takes a closer look."""
_MANY: Final = 48
LONG_NS: Final = 500_000_000
SAMPLED: Final = 8
"""The step since the last flush whose first hook is timed: behind a flush caches are as they are behind no other."""
CALL_NS: Final = 2_000
"""Of a hook what no clock inside it sees: its call, the original's through it, and the first look at the clock."""
_LONGEST_NS: Final = 100_000
"""Two hooks that took longer were interrupted."""

thread_cpu = time.thread_time_ns


class Later:
    """What hooks saw, in order: `entries`, for `work` to get them all. steps: how many the hooks have counted.

    When `work` fails the entries are gone, and the failure is counted: they would only fail again.
    others: hooks of each step that are not timed. Of those that are, one is the first of a step and one the last.
    """

    __slots__ = ("_calls", "_clock", "_first", "_hooks", "_last", "_recorder", "_work", "entries", "since", "steps")

    def __init__(
        self, work: Callable[[list[Any]], None], recorder: WholeRecorder, hooks: Hooks, clock: Callable[[], int],
        others: int = 0,
    ) -> None:  # fmt: skip
        self._work, self._recorder, self._hooks, self._clock = work, recorder, hooks, clock
        self._calls = (2 + others) * CALL_NS
        self.entries: list[Any] = []
        self.steps = 0
        self.since = clock()
        """When what waited was worked off last."""
        self._first = self._last = 0
        """What the first hook of a step took, and the last one, as seen last."""

    def first(self, now: int) -> None:
        """To be called by a step's first hook, which began at `now`, while `steps` is `SAMPLED`."""
        self._first = self._clock() - now

    def look(self, now: int) -> None:
        """To be called by a step's last hook, which began at `now`, once `steps` is over `FEW` or `since` is `LONG_NS`
        ago.
        """
        self._last = self._clock() - now
        if self.steps >= _MANY or now - self.since > LONG_NS:
            self.flush()

    def flush(self) -> None:
        """Work off what waits. On the thread of the hooks."""
        entries, start = self.entries, thread_cpu()  # not the clock: the thread may be sent away meanwhile
        recorder, events = self._recorder, self._recorder.events
        hooks = self.steps * min((self._first or self._last) + self._last + self._calls, _LONGEST_NS)
        something = bool(entries)
        try:
            self._work(entries)
        except Exception:
            self._hooks.failed()
        entries.clear()
        self.steps, self.since = 0, self._clock()
        recorder.spent(hooks + thread_cpu() - start, recorder.events - events)
        if something:
            recorder.flush()  # its books: an engine that is killed has told what recording cost it up to here


class Waits:
    """How long this thread has waited for a CPU since the last time; -1 where the kernel does not count."""

    __slots__ = ("_delays", "_known")

    def __init__(self) -> None:
        self._delays: RunDelay | None = None
        self._known = available()

    def close(self) -> None:
        """Nobody asks any more."""
        if self._delays is not None:
            self._delays.close()

    def __call__(self, now: int) -> int:
        """In ns."""
        if not self._known:
            return -1
        if self._delays is None:
            self._delays = RunDelay()  # on the thread itself
            return 0
        return self._delays.delta(now)
