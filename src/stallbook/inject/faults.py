"""The kinds of faults, one small class each. They act on the engine through its ports, and never on the recorder's
account of it: a fault that makes the engine do something has the engine record what it then records anyway.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final

from stallbook.demo.blocks import blocks_for
from stallbook.demo.scheduler import Limits, Plan, Sequence, State
from stallbook.demo.scheduler import plan as schedule
from stallbook.inject.machine import Competitor, Quota
from stallbook.inject.stage import Stage
from stallbook.inject.task import KINDS

__all__ = ["FAULTS", "Fault"]

Pass = Callable[[], list[int]]


class Fault:
    """One fault. The runner calls `begin` once and `step` once a step, both inside the scheduling segment."""

    kind: ClassVar[str]
    low_ms: ClassVar[float] = 4.0
    high_ms: ClassVar[float] = 40.0
    """Its length is drawn from here, evenly on a logarithmic scale."""
    fits: ClassVar[bool] = False
    """Whether it has to find a batch of exactly a captured size."""

    def __init__(self, stage: Stage, length_ns: int) -> None:
        self.stage, self.length = stage, length_ns
        self.entry = stage.journal.open(self.kind, KINDS[self.kind])
        self.until = stage.now() + length_ns
        self.begin()

    def begin(self) -> None:
        """What happens first."""

    def step(self) -> bool:
        """Act once in this step; whether there is more to come."""
        return False

    def plan(self, state: State, limits: Limits) -> Plan:
        """What the engine does in this step."""
        return schedule(state, limits)

    def decode(self, run: Pass, rows: int, eager: bool) -> list[int]:
        """The step's forward pass."""
        return run()

    def _spin(self) -> None:
        start = self.stage.now()
        while (now := self.stage.now()) < start + self.length:
            pass
        self.entry.add(start, now)


class Burst(Fault):
    """Long prompts arrive at once."""

    kind = "burst"
    low_ms, high_ms = 8.0, 80.0

    def begin(self) -> None:
        """About 45 prompt tokens a millisecond, in prompts of up to 1,500."""
        tokens, self._names = int(self.length / 1e6 * 45), set[str]()
        count = max(1, -(-tokens // 1500), self.stage.random.randint(1, 4))
        for _ in range(count):
            self._names.add(self.stage.offer(max(128, tokens // count), 1))

    def step(self) -> bool:
        """Until all of them are done."""
        return self.stage.unfinished(self._names)

    def owns(self, request: str) -> bool:
        """Whether this request's prefill was planted."""
        return request in self._names


class Document(Fault):
    """A long text is tokenized on the loop. What the model sees of it is short."""

    kind = "document"
    low_ms, high_ms = 8.0, 60.0

    def begin(self) -> None:
        """About 1,100 characters a millisecond."""
        self._names = {self.stage.offer_text(int(self.length / 1e6 * 1100))}

    def step(self) -> bool:
        """Until it is done."""
        return self.stage.unfinished(self._names)


class Pool(Fault):
    """Blocks are taken away for a while: the newest requests are evicted, and come back when they are returned."""

    kind = "pool"
    low_ms, high_ms = 15.0, 100.0

    def begin(self) -> None:
        """All free blocks, and those of the newest few."""
        state = self.stage.engine.state
        victims = state.running[-self.stage.random.randint(1, 4) :]
        self._taken = state.free + sum(blocks_for(seq.computed) for seq in victims)
        state.free -= self._taken

    def step(self) -> bool:
        """Until the last victim is back."""
        state = self.stage.engine.state
        if self._taken and self.stage.now() >= self.until:
            state.free += self._taken
            self._taken = 0
        return bool(self._taken or state.swapped)


class Fallback(Fault):
    """Captured sizes are taken away for some steps from a batch that had fitted one exactly.

    What a captured pass of these rows costs is seen just before, in the engine's own steps. An eager pass here costs
    less than two captured ones; so that the dear fallback of other engines is planted too, its work is really done
    several times.
    """

    kind = "fallback"
    low_ms, high_ms = 2.0, 10.0
    """Here: eager passes."""
    fits: ClassVar[bool] = True
    SEEN: ClassVar[int] = 7

    def begin(self) -> None:
        """First the captured steps."""
        self._left = self.SEEN + self.stage.random.randint(1, 4)
        self._costs: list[float] = []

    def step(self) -> bool:
        """Count the steps."""
        self._left -= 1
        return self._left >= 0

    def plan(self, state: State, limits: Limits) -> Plan:
        """As always, then with no size that fits."""
        seen = len(self._costs) >= self.SEEN
        return schedule(state, replace(limits, capture_sizes=(1,)) if seen else limits)

    def decode(self, run: Pass, rows: int, eager: bool) -> list[int]:
        """Time either kind; the difference is planted."""
        t0 = self.stage.now()
        for _ in range(max(1, round(self.length / 1e6)) if eager else 1):
            tokens = run()
        t1 = self.stage.now()
        if not eager:
            self._costs.append((t1 - t0) / rows)
        else:
            self.entry.add(t0, t1, t1 - t0 - int(rows * statistics.median(self._costs)))
        return tokens


class Collection(Fault):
    """Full collections, inside the scheduling segment or inside the forward pass's."""

    kind = "collection"
    low_ms, high_ms = 1.0, 6.0
    """Here: collections in a row."""

    def begin(self) -> None:
        """Choose the place."""
        self._in_decode = self.stage.random.random() < 0.5
        self._done = False

    def step(self) -> bool:
        """Once, in one place or the other."""
        if not self._in_decode and not self._done:
            self._collect()
        return not self._done

    def decode(self, run: Pass, rows: int, eager: bool) -> list[int]:
        """Before the pass, in its segment."""
        if self._in_decode and not self._done:
            self._collect()
        return run()

    def _collect(self) -> None:
        for _ in range(max(1, round(self.length / 1e6))):
            t0 = self.stage.now()
            gc.collect()
            self.entry.add(t0, self.stage.now())
        self._done = True


class Repeat(Fault):
    """The forward pass is slow for a few steps: its work is really done several times."""

    kind = "repeat"
    low_ms, high_ms = 2.0, 12.0
    """Here: extra passes."""

    def begin(self) -> None:
        """One to three steps of it."""
        self._left = self.stage.random.randint(1, 3)

    def step(self) -> bool:
        """Count the steps."""
        self._left -= 1
        return self._left >= 0

    def decode(self, run: Pass, rows: int, eager: bool) -> list[int]:
        """The first pass is the engine's own, the rest are planted."""
        tokens = run()
        t0 = self.stage.now()
        for _ in range(max(2, round(self.length / 1e6))):
            run()
        self.entry.add(t0, self.stage.now())
        return tokens


class Scheduler(Fault):
    """The scheduler is busy."""

    kind = "scheduler"

    def step(self) -> bool:
        """Once."""
        self._spin()
        return False


class Compile(Fault):
    """A segment that has a name of its own."""

    kind = "compile"

    def step(self) -> bool:
        """Once, in that segment; the engine names it as it names all of its segments."""
        self.stage.recorder.enter(self.stage.segment[self.kind])
        self._spin()
        self.stage.recorder.enter(self.stage.segment["sched"])
        return False


class Adapter(Compile):
    """Another."""

    kind = "adapter"


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

    def begin(self) -> None:
        """Between 30% and 70%."""
        self._quota: Quota = self.stage.quota()
        self._t0 = self.stage.now()
        self._quota.limit(self.stage.random.uniform(0.3, 0.7))

    def step(self) -> bool:
        """Until it is lifted."""
        if self.stage.now() < self.until:
            return True
        self._quota.lift()
        self.entry.throttled.append((self._t0, self.stage.now()))
        return False


FAULTS: Final[dict[str, type[Fault]]] = {
    kind.kind: kind
    for kind in (
        Burst, Pool, Fallback, Collection, Document, Compete, Throttle, Repeat, Scheduler, Compile, Adapter, LeftOut,
        Hold,
    )
}  # fmt: skip
