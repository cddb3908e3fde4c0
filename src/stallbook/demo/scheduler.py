"""The scheduler: a pure function of state that returns a plan. It reads no clock and runs nothing.

`plan` looks at a `State` and says what the next step does; `commit` applies a plan, and nothing else, to the
state. An engine executes the plan in between, in real time or on a modelled clock.

The policy, in its order:

1. evicted requests come back first, first evicted first, if their blocks and 8 more are free;
2. every running request past its prefill decodes one token; where the pool cannot give it a block, the newest
   running request is evicted, itself if it is the newest;
3. what is left of the token budget goes to prefill: running requests first, then the waiting ones in order, as
   long as the whole prompt fits above the admission watermark.

Where such a step would do nothing for ever, one rule yields: an idle pool ignores headroom and watermark, and
if only prefills run and none of them gets its blocks, the newest gives way to the oldest. With these, the
oldest running request always progresses, so every workload whose requests fit the pool one at a time ends.

An evicted request keeps its cache on the host (swap), or drops it and joins the head of the waiting line to
prefill everything again (recompute; then a step that evicted admits nobody, or the victim would come straight
back). A request evicted in its first prefill has emitted nothing: it just restarts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from stallbook.demo.blocks import blocks_for
from stallbook.demo.forecast import peak_blocks
from stallbook.demo.limits import Limits
from stallbook.demo.work import tokens_within, work_of

__all__ = [
    "ADMITS", "BY_BUDGET", "BY_KV", "BY_SEQS", "CAPTURED", "EAGER", "NO_GRAPH",
    "RECOMPUTE", "RESTART", "SWAP", "Chunk", "Eviction", "Limits", "Plan",
    "Sequence", "State", "commit", "plan",
]  # fmt: skip

SWAP, RECOMPUTE, RESTART = "swap", "recompute", "restart"
NO_GRAPH, CAPTURED, EAGER = 0, 1, 2
"""How the step decodes: not at all or with no captured path in existence; captured; eagerly above it."""
ADMITS, BY_KV, BY_SEQS, BY_BUDGET = 0, 1, 2, 3
"""What kept the first waiting request out: nothing, or no request waits; blocks; the sequence limit; the budget."""
HEADROOM: Final = 8
"""Blocks beyond its own that must be free before an evicted request comes back."""


@dataclass(eq=False, slots=True)
class Sequence:
    """What the scheduler knows of a request. `key` is the engine's own name for it."""

    key: int
    prompt: int
    max_new: int
    target: int = 0
    """Tokens to prefill before it may decode: the prompt, or after a recompute everything it had."""
    computed: int = 0
    """Tokens whose KV is in the pool (or, while swapped, on the host)."""
    generated: int = 0

    def __post_init__(self) -> None:
        self.target = self.target or self.prompt


@dataclass(frozen=True, slots=True)
class Eviction:
    """A running request loses its blocks. `mode` is SWAP, RECOMPUTE or RESTART."""

    seq: Sequence
    mode: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prefill `tokens` of a request from `start` on. `admitted`: it leaves the waiting line with this chunk."""

    seq: Sequence
    start: int
    tokens: int
    admitted: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """One step, in the order in which an engine executes it."""

    readmit: tuple[Sequence, ...] = ()
    evict: tuple[Eviction, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    decodes: tuple[Sequence, ...] = ()
    graph: int = NO_GRAPH
    padded: int = -1
    """Rows of the captured call, padding included; -1 without one."""
    blocked: int = ADMITS
    left_out: tuple[Sequence, ...] = ()
    """Running requests past their prefill that this step does not decode. `plan` leaves nobody out; others may."""

    def __bool__(self) -> bool:
        return bool(self.decodes or self.chunks or self.readmit or self.evict)


@dataclass(slots=True)
class State:
    """Who waits, who runs (oldest admission first), who is swapped out, and how many blocks are free."""

    free: int
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    swapped: deque[Sequence] = field(default_factory=deque)

    @property
    def busy(self) -> bool:
        """Whether any request is left to serve."""
        return bool(self.running or self.waiting or self.swapped)

    def add(self, seq: Sequence, limits: Limits) -> None:
        """A request joins the waiting line. One that the empty pool could not hold to its end is refused."""
        if seq.prompt < 1 or seq.max_new < 1:
            raise ValueError("a request has at least one prompt token and one token to make")
        if blocks_for(seq.prompt + seq.max_new) > limits.kv_blocks:
            raise ValueError(f"a request of {seq.prompt + seq.max_new} tokens can never fit {limits.kv_blocks} blocks")
        self.waiting.append(seq)


class _Draft:
    """A plan in the making: a private copy of what the stages below change."""

    def __init__(self, state: State, limits: Limits) -> None:
        self.limits = limits
        self.free = state.free
        self.running = list(state.running)
        self.away = list(state.swapped)
        self.readmitted: list[Sequence] = []
        self.evicted: list[Eviction] = []
        self.gone: set[Sequence] = set()
        self.decodes: list[Sequence] = []
        self.chunks: list[Chunk] = []
        self.budget: float = limits.token_budget

    def readmit(self, swapped: Iterable[Sequence]) -> None:
        for seq in swapped:
            if len(self.running) >= self.limits.max_num_seqs:
                return
            if blocks_for(seq.computed + 1) + (HEADROOM if self.running else 0) > self.free:
                return
            self.free -= blocks_for(seq.computed)
            self.running.append(seq)
            self.away.remove(seq)
            self.readmitted.append(seq)

    def evict_newest(self) -> Sequence:
        seq = self.running.pop()
        self.free += blocks_for(seq.computed)
        if seq.computed < seq.target and not seq.generated:
            mode = RESTART
        else:
            mode = RECOMPUTE if self.limits.recompute else SWAP
        if mode == SWAP:
            self.away.append(seq)
        self.evicted.append(Eviction(seq, mode))
        self.gone.add(seq)
        return seq

    def decode(self) -> None:
        """A slot for each decode, by age: a victim is the newest, so it holds no slot of this step yet."""
        for seq in [seq for seq in self.running if seq.computed >= seq.target]:
            if seq in self.gone:
                continue
            need = blocks_for(seq.computed + 1) - blocks_for(seq.computed)
            while self.free < need:
                if self.evict_newest() is seq:
                    break
            else:
                self.free -= need
                self.decodes.append(seq)
        self.budget = self.limits.left_for_prefill(len(self.decodes))

    def continue_prefills(self) -> None:
        for seq in self.running:
            if seq.computed < seq.target:
                self._chunk(seq, seq.computed, admitted=False)

    def admit(self, waiting: Iterable[Sequence]) -> int:
        """Admits in order; returns what stopped it."""
        for seq in waiting:
            if len(self.running) >= self.limits.max_num_seqs:
                return BY_SEQS
            if not self._has_room(seq):
                return BY_KV
            if self._tokens(0) < 1:
                return BY_BUDGET
            if not self._chunk(seq, 0, admitted=True):
                return BY_KV
            self.running.append(seq)
        return ADMITS

    def _has_room(self, seq: Sequence) -> bool:
        """Whether the pool holds a new request, and the watermark above it; an idle pool only has to hold it."""
        free = self.free - blocks_for(seq.target)
        if not self.running:
            return free >= 0
        reserve = self.limits.admit_watermark * self.limits.kv_blocks
        if not self.limits.forecast:
            return free >= reserve
        every = (*self.running, *self.away, seq)
        peak = peak_blocks((max(one.computed, one.target), one.max_new - one.generated) for one in every)
        return free >= 0 and self.limits.kv_blocks - peak >= reserve

    def _tokens(self, start: int) -> int:
        """Tokens of a prompt that the budget holds, from `start` on; a step that does nothing else holds at least 1."""
        least = 0 if self.decodes or self.chunks else 1
        return max(least, tokens_within(self.budget, start, self.limits.context_weight))

    def _chunk(self, seq: Sequence, start: int, *, admitted: bool) -> bool:
        tokens = min(self._tokens(start), seq.target - start)
        need = blocks_for(start + tokens) - blocks_for(start)
        if tokens <= 0 or need > self.free:
            return False
        self.free -= need
        self.budget -= work_of(tokens, start, self.limits.context_weight)
        self.chunks.append(Chunk(seq, start, tokens, admitted))
        return True

    def yield_to_oldest(self) -> None:
        """Only prefills run and the pool is dry between them: the newest give way until the oldest fits."""
        oldest = self.running[0]
        while not self._chunk(oldest, oldest.computed, admitted=False):
            if self.evict_newest() is oldest:  # cannot be: what fits the empty pool alone fits now
                raise AssertionError("the oldest request does not fit the pool alone")


def plan(state: State, limits: Limits) -> Plan:
    """What the next step does. Changes nothing; an empty plan means that there is nothing to serve."""
    draft = _Draft(state, limits)
    draft.readmit(state.swapped)
    draft.decode()
    draft.continue_prefills()
    if limits.recompute and draft.evicted:
        blocked = BY_KV
    else:
        restarted = [item.seq for item in reversed(draft.evicted) if item.mode == RESTART]
        blocked = draft.admit(chain(restarted, state.waiting))
    if draft.running and not (draft.decodes or draft.chunks or draft.readmitted or draft.evicted):
        draft.yield_to_oldest()
    graph, padded = _path(len(draft.decodes), limits.capture_sizes)
    return Plan(
        tuple(draft.readmitted), tuple(draft.evicted), tuple(draft.chunks), tuple(draft.decodes), graph, padded, blocked
    )  # fmt: skip


def _path(rows: int, sizes: tuple[int, ...]) -> tuple[int, int]:
    """The captured size that holds this many rows, or the eager path above the largest."""
    if not rows or not sizes:
        return NO_GRAPH, -1
    at = bisect_left(sizes, rows)
    return (CAPTURED, sizes[at]) if at < len(sizes) else (EAGER, -1)


def commit(state: State, step: Plan) -> list[Sequence]:
    """Apply a plan that was executed. Returns the requests that are finished by it, in batch order."""
    for seq in step.readmit:
        state.swapped.remove(seq)
        state.running.append(seq)
        state.free -= blocks_for(seq.computed)
    for item in step.evict:
        _evict(state, item)
    for chunk in step.chunks:
        if chunk.admitted:
            state.waiting.remove(chunk.seq)
            state.running.append(chunk.seq)
        state.free -= blocks_for(chunk.start + chunk.tokens) - blocks_for(chunk.start)
        chunk.seq.computed = chunk.start + chunk.tokens
    finished = []
    for seq in step.decodes:
        state.free -= blocks_for(seq.computed + 1) - blocks_for(seq.computed)
        seq.computed += 1
        seq.generated += 1
        if seq.generated >= seq.max_new:
            state.running.remove(seq)
            state.free += blocks_for(seq.computed)
            finished.append(seq)
    return finished


def _evict(state: State, item: Eviction) -> None:
    seq = item.seq
    state.running.remove(seq)
    state.free += blocks_for(seq.computed)
    if item.mode == SWAP:
        state.swapped.append(seq)
        return
    # A request evicted again in the middle of a recompute keeps its target: it still has all of that to redo.
    seq.target = max(seq.target, seq.computed)
    seq.computed = 0
    state.waiting.appendleft(seq)
