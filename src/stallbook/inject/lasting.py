"""The kinds of faults that last for a time: a request is kept away, or the engine has not all of its core."""

from __future__ import annotations

from dataclasses import replace

from stallbook.demo.scheduler import Limits, Plan, Sequence, State
from stallbook.demo.scheduler import plan as schedule
from stallbook.inject.fault import Fault
from stallbook.inject.machine import Competitor, Quota

__all__ = ["Compete", "Hold", "LeftOut", "Throttle"]


class LeftOut(Fault):
    """One request is left out of the batch for some steps, for no reason that anybody records."""

    kind = "left-out"
    low_ms, high_ms = 12.0, 100.0

    def begin(self) -> None:
        """Choose one that has tokens to come."""
        jobs = self.stage.engine.jobs
        able = [s for s in self.stage.engine.state.running if s.generated >= 2 and s.max_new - s.generated > 4]
        self._seq: Sequence | None = self.stage.random.choice(able) if able else None
        if self._seq is not None:
            self._job = jobs[self._seq.key]
            self._away()
        self._t0 = self.stage.now()

    def step(self) -> bool:
        """Until its time is over."""
        if self._seq is None:
            return False
        now = self.stage.now()
        if now < self.until:
            return True
        self._back()
        self.entry.add(self._t0, now, None, self._job.arrival.name)
        return False

    def plan(self, state: State, limits: Limits) -> Plan:
        """As if it did not run."""
        if self._seq is None or self.entry.windows:
            return schedule(state, limits)
        others = [seq for seq in state.running if seq is not self._seq]
        return replace(schedule(replace(state, running=others), limits), left_out=(self._seq,))

    def _away(self) -> None:
        """It begins."""

    def _back(self) -> None:
        """It ends."""


class Hold(LeftOut):
    """A request cannot be scheduled: it waits for a KV load, and the engine says so."""

    kind = "hold"

    def _away(self) -> None:
        self.stage.recorder.hold(self._job.handle, "kv")

    def _back(self) -> None:
        self.stage.recorder.release(self._job.handle, "kv")


class Compete(Fault):
    """A busy process has the engine's core for part of the time."""

    kind = "competitor"
    low_ms, high_ms = 15.0, 80.0
    alone = False

    def begin(self) -> None:
        """It is awake already, and waits for a word."""
        self._rival: Competitor = self.stage.competitor()
        self._t0 = self.stage.now()
        self._rival.run(self.length)

    def step(self) -> bool:
        """Until it has stopped."""
        if self.stage.now() < self.until + 2_000_000:
            return True
        self.entry.competed.append((self._t0, self.stage.now()))
        return False


class Throttle(Fault):
    """The engine gets only part of its core: a CPU quota."""

    kind = "quota"
    low_ms, high_ms = 30.0, 120.0
    alone = False

    def begin(self) -> None:
        """Between 30% and 70%."""
        self._quota: Quota = self.stage.quota()
        self._t0 = self.stage.now()
        self.stage.journal.watch(self._quota.stopped)
        self._quota.limit(self.stage.random.uniform(0.3, 0.7))

    def step(self) -> bool:
        """Until it is lifted."""
        if self.stage.now() < self.until:
            return True
        self._quota.lift()
        self.stage.journal.watch(None)
        self.entry.throttled.append((self._t0, self.stage.now()))
        return False
