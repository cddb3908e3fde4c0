"""The kinds of faults that are over within a step or a few, one small class each.

They act on the engine through its ports, and never on the recorder's account of it: a fault that makes the engine do
something has the engine record what it then records anyway.
"""

from __future__ import annotations

import gc
import statistics
from dataclasses import replace
from typing import ClassVar, Final

from stallbook.demo.blocks import blocks_for
from stallbook.demo.scheduler import Limits, Plan, State
from stallbook.demo.scheduler import plan as schedule
from stallbook.inject.fault import EAGER, Fault, Pass
from stallbook.inject.lasting import Compete, Hold, LeftOut, Throttle

__all__ = ["FAULTS"]


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
    low_ms, high_ms = 8.0, 16.0
    """Here: eager passes."""
    alone = False
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

    def decode(self, run: Pass, rows: int, padded: int) -> list[int]:
        """Time either kind; the difference is planted."""
        t0 = self.stage.now()
        for _ in range(max(1, round(self.length / 1e6)) if padded == EAGER else 1):
            tokens = run()
        t1 = self.stage.now()
        if padded != EAGER:
            self._costs.append((t1 - t0) / padded)
        else:
            self.entry.add(t0, t1, t1 - t0 - int(rows * statistics.median(self._costs)))
        return tokens


class Collection(Fault):
    """Full collections, inside the scheduling segment or inside the forward pass's."""

    kind = "collection"
    low_ms, high_ms = 1.0, 6.0
    """Here: collections in a row."""
    alone = False

    def begin(self) -> None:
        """Choose the place."""
        self._in_decode = self.stage.random.random() < 0.5
        self._done = False

    def step(self) -> bool:
        """Once, in one place or the other."""
        if not self._in_decode and not self._done:
            self._collect()
        return not self._done

    def decode(self, run: Pass, rows: int, padded: int) -> list[int]:
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
    """The forward pass is slow for a few steps: its work is really done several times.

    By the rules a pass is slow from twice its baseline on; from four times on it is so on a machine that has sped up.
    How long the step's own pass took can only be guessed, by the journal as by the partition: one pass in ten is a
    quarter off here. So the extra ones are many, as in the stalls that the field reports (8 to 12 times the usual).
    """

    kind = "repeat"
    low_ms, high_ms = 10.0, 30.0
    """Here: extra passes."""
    alone = False

    def begin(self) -> None:
        """One to three steps of it."""
        self._left = self.stage.random.randint(1, 3)

    def step(self) -> bool:
        """Count the steps."""
        self._left -= 1
        return self._left >= 0

    def decode(self, run: Pass, rows: int, padded: int) -> list[int]:
        """The first pass is the engine's own, the rest are planted."""
        tokens = run()
        t0 = self.stage.now()
        for _ in range(max(1, round(self.length / 1e6))):
            run()
        self.entry.add(t0, self.stage.now())
        return tokens


class Scheduler(Fault):
    """The scheduler is busy."""

    kind = "scheduler"

    def step(self) -> bool:
        """Once; what it takes to begin with it is scheduling, too."""
        self._spin(self.began)
        return False


class Compile(Fault):
    """A segment that has a name of its own."""

    kind = "compile"

    def step(self) -> bool:
        """Once, in that segment; the engine names it as it names all of its segments."""
        self.stage.recorder.enter(self.stage.segment[self.kind])
        self._spin(self.stage.now())
        self.stage.recorder.enter(self.stage.segment["sched"])
        return False


class Adapter(Compile):
    """Another."""

    kind = "adapter"


FAULTS: Final[dict[str, type[Fault]]] = {
    kind.kind: kind
    for kind in (
        Burst, Pool, Fallback, Collection, Document, Compete, Throttle, Repeat, Scheduler, Compile, Adapter, LeftOut,
        Hold,
    )
}  # fmt: skip
