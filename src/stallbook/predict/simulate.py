"""The engine on a modelled clock: the loop of `demo.engine`, with every duration taken from costs.

The same scheduler decides. A step takes in what has arrived, asks for a plan, and is charged for it part by part;
arrivals that fall into a step are seen by the next one. A plan that would come again and again is asked for once
(`Policy.steady`): each of its steps is still timed and recorded on its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Row
from dataclasses import dataclass, field

from stallbook.demo.scheduler import RESTART, SWAP, Chunk, Plan, Sequence
from stallbook.predict.policy import Policy
from stallbook.predict.ports import NEVER_RAN, Costs, Heap, NoHeap, Pace, Request, SteadyPace
from stallbook.predict.trail import PREFILL, TOK, Trail
from stallbook.predict.trail import SWAP as SWAPPED
from stallbook.run import NEVER

__all__ = ["Setup", "simulate"]

POLL_NS = 500_000
"""How often an idle engine looks whether a prompt has come back."""


@dataclass(frozen=True)
class Setup:
    """An engine to simulate. `stop_ns`: when it ends whatever is left; `on_loop`: where prompts are tokenized."""

    policy: Policy
    costs: Costs
    pace: Pace = field(default_factory=SteadyPace)
    heap: Heap = field(default_factory=NoHeap)
    on_loop: bool = True
    wake_ns: int = 0
    """How late a sleeping engine wakes."""
    stop_ns: int = NEVER


def simulate(requests: Row[Request], setup: Setup) -> Trail:
    """Serve `requests`, in the order of their arrival, until all are served or the setup ends."""
    return _Engine(requests, setup).serve()


class _Engine:
    def __init__(self, requests: Row[Request], setup: Setup) -> None:
        self.requests, self.setup = requests, setup
        self.policy, self.costs, self.heap, self.pace = setup.policy, setup.costs, setup.heap, setup.pace
        self.trail = Trail(requests)
        self.enters = [one.at_ns + one.enter_ns for one in requests]
        self.order = deque(sorted(range(len(requests)), key=lambda i: (self.enters[i], i)))
        self.away: deque[tuple[int, int]] = deque()
        """(ready, request) of the prompts that are tokenized elsewhere, in order."""
        self.free_at = 0
        self.now = 0
        self.gone: dict[int, list[int]] = {}
        """Open evictions by request."""
        self.waited = 0
        """Up to when its waits for a core have been counted."""
        self.prompt = -NEVER_RAN
        """The last step in which a prompt ran."""

    def serve(self) -> Trail:
        """The loop of the engine."""
        while self.now < self.setup.stop_ns:
            if self.policy.busy or self._due(self.now):
                self._steps()
            elif self.away:
                self.waited = self.now = max(self.now + 1, self.away[0][0] + POLL_NS // 2)
                self._poll()
            elif self.order:
                self.waited = self.now = max(self.now, self.enters[self.order[0]]) + self.setup.wake_ns
            else:
                break
        self.trail.end_ns = self.now
        return self.trail

    def _due(self, now: int) -> bool:
        return bool(self.order) and self.enters[self.order[0]] <= now

    def _next(self) -> int:
        """When something new comes in at the earliest."""
        at = self.enters[self.order[0]] if self.order else NEVER
        return min(at, self.away[0][0]) if self.away else at

    # Intake

    def _take_in(self) -> bool:
        took = self._poll()
        began = self.now
        while self._due(began):
            key = self.order.popleft()
            cost = self.requests[key].tok_ns * self.pace.speed(self.now)
            if self.setup.on_loop:
                start = self.now
                self.now += round(cost)
                if self.now > start:
                    self.trail.pieces.append((len(self.trail.steps), TOK, start, self.now, key))
                self._enlist(key)
                took = True
            else:
                self.free_at = max(self.free_at, self.now) + round(cost)
                self.away.append((self.free_at, key))
        return took

    def _poll(self) -> bool:
        took = False
        while self.away and self.away[0][0] <= self.now:
            self._enlist(self.away.popleft()[1])
            took = True
        return took

    def _enlist(self, key: int) -> None:
        request = self.requests[key]
        self.policy.add(Sequence(key, request.prompt, request.max_new))

    # Steps

    def _steps(self) -> None:
        """One step, or as many as have the same plan."""
        t0 = self.now
        took = self._take_in()
        policy = self.policy
        step = policy.plan()
        if not step and not took:
            return
        times = policy.steady(step)
        emitting = policy.emitting(step)
        keys = tuple([seq.key for seq in emitting])
        rows = len(step.decodes)
        kv = sum([seq.computed for seq in step.decodes]) + rows
        done = 1
        self._execute(step, t0, kv, keys)
        while done < times and self._next() > self.now < self.setup.stop_ns:
            kv += rows
            self._repeat(step, kv, keys)
            done += 1
        for seq in policy.commit(step, done):
            self.trail.finish[seq.key] = self.now

    def _execute(self, step: Plan, t0: int, kv: int, keys: tuple[int, ...]) -> None:
        """A step of any kind: what comes before its pass, then as every step."""
        if step.chunks:
            self.prompt = len(self.trail.steps)
        speed, work = self.pace.speed(t0), self._work(step, kv)
        noise = self.pace.chunk if self.costs.mixed and step.chunks else self.pace.step
        factor = speed * noise(t0, work)
        sched0 = self.now
        sched1 = self.now = sched0 + round(self.costs.sched(step) * factor)
        for seq in step.readmit:
            self._piece(SWAPPED, self.costs.swap_in(seq.computed) * factor, seq.key)
            self._back(seq.key)
        for item in step.evict:
            self._evict(item.seq, item.mode, factor)
        for chunk in step.chunks:
            self._chunk(chunk, speed)
        prompt = sum([chunk.tokens for chunk in step.chunks])
        self._pass(step, (t0, sched0, sched1), factor, kv, keys, prompt, work)

    def _repeat(self, step: Plan, kv: int, keys: tuple[int, ...]) -> None:
        """A step that only decodes."""
        t0 = self.now
        work = self._work(step, kv)
        factor = self.pace.speed(t0) * self.pace.step(t0, work)
        self.now += round(self.costs.sched(step) * factor)
        self._pass(step, (t0, t0, self.now), factor, kv, keys, 0, work)

    def _work(self, step: Plan, kv: int) -> float:
        """What the step's pass takes at the speed 1; 0 where it has none."""
        if step.decodes or (self.costs.mixed and step.chunks):
            return self.costs.forward(step, kv, len(self.trail.steps) - self.prompt)
        return 0.0

    def _pass(
        self, step: Plan, began: tuple[int, int, int], factor: float, kv: int, keys: tuple[int, ...], prompt: int,
        work: float,
    ) -> None:  # fmt: skip
        decode0, emit, delay = self.now, self.now, 0
        rows = len(step.decodes)
        if rows or (self.costs.mixed and step.chunks):
            emit += round(work * factor)
            delay = self.pace.wait(self.waited, emit)
            self.waited = emit
            emit += delay
        output1 = emit
        if keys:
            output1 += round(self.costs.output(len(keys)) * factor)
        if (pause := self.heap.allocate(len(keys))) is not None:
            start = output1
            output1 += round(pause[1] * factor)
            self.trail.pauses.append((start, output1, pause[0]))
        self.now = output1 + round(self.costs.close(step) * factor)
        self.trail.steps.append((
            *began, decode0, emit, output1, self.now, step.graph, step.padded, rows, prompt, kv if rows else 0,
            step.blocked, delay,
        ))  # fmt: skip
        self.trail.emitted.append(keys)

    # What only some steps have

    def _piece(self, name: int, ns: float, key: int) -> None:
        start = self.now
        self.now += round(ns)
        self.trail.pieces.append((len(self.trail.steps), name, start, self.now, key))

    def _back(self, key: int) -> None:
        event = self.gone.pop(key, None)
        if event is not None:
            event[2] = self.now

    def _evict(self, seq: Sequence, mode: str, factor: float) -> None:
        if mode == RESTART:
            self.trail.restarts += 1
            return
        swap = mode == SWAP
        event = [seq.key, self.now, NEVER, int(not swap), 0 if swap else seq.computed]
        self.gone[seq.key] = event
        self.trail.evictions.append(event)
        if swap:
            self._piece(SWAPPED, self.costs.swap_out(seq.computed) * factor, seq.key)

    def _chunk(self, chunk: Chunk, speed: float) -> None:
        key = chunk.seq.key
        if key not in self.trail.admit:
            self.trail.admit[key] = self.now
        else:
            self._back(key)
        self.trail.prefilled.append((len(self.trail.steps), key))
        if not self.costs.mixed:
            work = self.costs.prefill(chunk.start, chunk.tokens)
            self._piece(PREFILL, work * speed * self.pace.chunk(self.now, work), key)
