"""vLLM's scheduler as a policy: what the first engine of its kind would plan, from its settings and its requests.

A request has `prompt + generated` tokens; a step computes some that are not yet computed, and one whose last token is
computed gets the next one. So there are no phases: a decode is a request that lacks one token, a prefill one that
lacks more. In its order:

1. running requests, in the order of their admission, get what they lack, as far as the token budget reaches; one that
   finds no blocks evicts the newest, itself if it is the newest, and the victim drops its cache and waits in front;
2. unless somebody was evicted, waiting requests come in, first come first served, while there are tokens, seats, and
   blocks for all of their tokens, a watermark left free.

One block of the pool is never given out. What it does not model is refused by `settings_of`: prefix caching,
scheduling ahead of the output, speculation, priorities.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass, field, fields
from typing import Any, Final

from stallbook.demo.scheduler import (
    ADMITS,
    BY_BUDGET,
    BY_KV,
    BY_SEQS,
    CAPTURED,
    EAGER,
    NO_GRAPH,
    RECOMPUTE,
    Chunk,
    Eviction,
    Plan,
    Sequence,
)  # fmt: skip
from stallbook.errors import StallbookError
from stallbook.run import Run

__all__ = ["VllmPolicy", "VllmSettings", "is_vllm", "settings_of"]

NULL_BLOCK: Final = 1


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """The settings that its scheduler goes by, under the names that vLLM gives them.

    Those without a default are in every log of the adapter. `cudagraph_capture_sizes`: none where nothing is captured.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    num_gpu_blocks: int
    max_model_len: int
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    cudagraph_capture_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens is at least max_num_seqs: every running request decodes")
        if min(self.max_num_seqs, self.block_size, self.max_model_len) < 1:
            raise ValueError("max_num_seqs, block_size and max_model_len are at least 1")
        if self.num_gpu_blocks <= NULL_BLOCK:
            raise ValueError("num_gpu_blocks is at least 2: one block is never given out")
        if not 0.0 <= self.watermark < 1.0 or self.long_prefill_token_threshold < 0:
            raise ValueError("watermark is in [0, 1), long_prefill_token_threshold not negative")

    def blocks(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_size)


def is_vllm(run: Run) -> bool:
    """Whether vLLM's adapter recorded this run."""
    return run.engine.split(" ", 1)[0] == "vllm"


UNMODELLED: Final = {
    "enable_prefix_caching": "prefix caching", "async_scheduling": "asynchronous scheduling",
    "kv_offloading_size": "an offloaded KV cache",
}  # fmt: skip
PARALLEL: Final = ("pipeline_parallel_size", "data_parallel_size")


def settings_of(run: Run) -> VllmSettings:
    """The scheduler's settings of a log; StallbookError where they are not known or not modelled."""
    config = run.config
    for key, what in UNMODELLED.items():
        if config.get(key):
            raise _refused(run, f"was recorded with {what} ({key}), which the simulator does not model")
    for key in PARALLEL:
        if int(config.get(key) or 1) > 1:
            raise _refused(run, f"was recorded with {key} {config[key]}, which the simulator does not model")
    if config.get("policy", "fcfs") != "fcfs":
        raise _refused(run, f"was recorded with the policy {config['policy']!r}, the simulator has fcfs")
    if (run.emissions.tokens > 1).any():
        raise _refused(run, "has several tokens in one emission: speculation is not modelled")
    known = {f.name for f in fields(VllmSettings)}
    given = {key: value for key, value in config.items() if key in known and value is not None}
    given["cudagraph_capture_sizes"] = _captured(config)
    for name, narrower in (
        ("max_num_seqs", "max_num_active_seqs"),
        ("max_num_batched_tokens", "max_num_scheduled_tokens"),
    ):
        if limit := config.get(narrower):
            given[name] = min(int(limit), int(given.get(name, limit)))
    try:
        return VllmSettings(**given)
    except (TypeError, ValueError) as error:
        raise _refused(run, f"does not hold vLLM's settings: {error}") from None


def _refused(run: Run, what: str) -> StallbookError:
    return StallbookError("no-model", what, "predict needs a vLLM log with settings that it models", run.path)


def _captured(config: Mapping[str, Any]) -> tuple[int, ...]:
    sizes = () if config.get("enforce_eager") else config.get("cudagraph_capture_sizes") or ()
    return tuple(sorted(map(int, sizes))) if not isinstance(sizes, str) else ()


@dataclass
class VllmPolicy:
    """See the module: a `Policy`. free: blocks that may be given out now."""

    settings: VllmSettings
    free: int = field(init=False)
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    decoding: set[int] = field(default_factory=set)
    """Who got a token in the step before: a log counts their tokens as decoded, all others as prefilled."""

    def __post_init__(self) -> None:
        self.free = self.settings.num_gpu_blocks - NULL_BLOCK

    @property
    def busy(self) -> bool:
        """See `Policy`."""
        return bool(self.running or self.waiting)

    @property
    def holds(self) -> int:
        """Tokens that the empty pool holds."""
        return (self.settings.num_gpu_blocks - NULL_BLOCK) * self.settings.block_size

    def most_of(self, prompt: int, max_new: int) -> int:
        """Tokens of one request that have to be in the pool at once: all but its last one."""
        return max(prompt, min(prompt + max_new - 1, self.settings.max_model_len))

    def add(self, seq: Sequence) -> None:
        """See `Policy`."""
        if seq.prompt < 1 or seq.max_new < 1:
            raise ValueError("a request has at least one prompt token and one token to make")
        if (most := self.most_of(seq.prompt, seq.max_new)) > self.holds:
            raise ValueError(f"a request of {most} tokens can never fit {self.settings.num_gpu_blocks} blocks")
        self.waiting.append(seq)

    def drop(self, key: int) -> None:
        """A request was given up: it leaves, wherever it is."""
        for seq in self.running:
            if seq.key == key:
                self.running.remove(seq)
                self.free += self.settings.blocks(seq.computed)
                return
        self.waiting = deque(seq for seq in self.waiting if seq.key != key)

    def plan(self) -> Plan:
        """See `Policy`."""
        return _Draft(self).plan()

    def emitting(self, step: Plan) -> Row[Sequence]:
        """See `Policy`: those that decode, and those whose last chunk this is."""
        whole = [c.seq for c in step.chunks if c.start + c.tokens == c.seq.prompt + c.seq.generated]
        return [*step.decodes, *whole]

    def steady(self, step: Plan) -> int:
        """See `Policy`: until one is done, or the pool has no block for one that needs it."""
        rows = step.decodes
        if not rows or step.chunks or step.evict or step.left_out:
            return 1
        limit, size = self.settings.max_model_len, self.settings.block_size
        most = min(min(s.max_new - s.generated, limit - s.prompt - s.generated) for s in rows)
        rounds = self.free // len(rows)
        if rounds:
            return max(1, min(most, rounds * size))
        ahead = sorted(-s.computed % size for s in rows)  # steps until each needs another block
        return max(1, min(most, ahead[self.free]))

    def commit(self, step: Plan, times: int) -> list[Sequence]:
        """See `Policy`."""
        blocks = self.settings.blocks
        for item in step.evict:
            seq = item.seq
            self.running.remove(seq)
            self.free += blocks(seq.computed)
            seq.computed = 0
            self.waiting.appendleft(seq)
        emitting = self.emitting(step)
        for chunk in step.chunks:
            if chunk.admitted:
                self.waiting.popleft()
                self.running.append(chunk.seq)
            self._advance(chunk.seq, chunk.tokens)
        for seq in step.decodes:
            self._advance(seq, times)
        self.decoding = {seq.key for seq in emitting}
        finished = []
        for seq in emitting:
            seq.generated += times
            if seq.generated >= seq.max_new or seq.prompt + seq.generated >= self.settings.max_model_len:
                self.running.remove(seq)
                self.free += blocks(seq.computed)
                finished.append(seq)
        return finished

    def _advance(self, seq: Sequence, tokens: int) -> None:
        before = self.settings.blocks(seq.computed)
        seq.computed += tokens
        self.free -= self.settings.blocks(seq.computed) - before


class _Draft:
    """A plan in the making: a private copy of what it changes."""

    def __init__(self, policy: VllmPolicy) -> None:
        self.policy, self.settings = policy, policy.settings
        self.free, self.budget = policy.free, policy.settings.max_num_batched_tokens
        self.running = list(policy.running)
        self.evicted: list[Eviction] = []
        self.chunks: list[Chunk] = []
        self.decodes: list[Sequence] = []
        everyone = len(policy.running) + len(policy.waiting)
        self.longest = self._longest(everyone)

    def _longest(self, everyone: int) -> int:
        """Tokens that one request gets at most: a long prompt is held back where it would starve others."""
        s = self.settings
        if not s.long_prefill_token_threshold or everyone < 2:
            return s.max_num_batched_tokens
        fair = s.max_num_batched_tokens // everyone if s.long_prefill_token_threshold_adaptive else 0
        return max(s.long_prefill_token_threshold, fair)

    def plan(self) -> Plan:
        """The whole step."""
        left_out = self._run()
        blocked = self._admit() if not self.evicted else BY_KV
        total = len(self.decodes) + sum([chunk.tokens for chunk in self.chunks])
        graph, padded = _path(total, self.settings.cudagraph_capture_sizes)
        return Plan(
            (), tuple(self.evicted), tuple(self.chunks), tuple(self.decodes), graph, padded, blocked, left_out
        )  # fmt: skip

    def _run(self) -> tuple[Sequence, ...]:
        """Running requests; returns those that the budget does not reach."""
        at, blocks = 0, self.settings.blocks
        while at < len(self.running) and self.budget > 0:
            seq = self.running[at]
            tokens = min(seq.prompt + seq.generated - seq.computed, self.longest, self.budget)
            need = blocks(seq.computed + tokens) - blocks(seq.computed)
            while need > self.free:
                victim = self.running.pop()
                self.free += blocks(victim.computed)
                self.evicted.append(Eviction(victim, RECOMPUTE))
                if victim is seq:
                    return ()
            self._take(seq, seq.computed, tokens, need, admitted=False)
            at += 1
        return tuple(self.running[at:])

    def _take(self, seq: Sequence, start: int, tokens: int, need: int, *, admitted: bool) -> None:
        self.free -= need
        self.budget -= tokens
        if tokens == 1 and not admitted and seq.key in self.policy.decoding:
            self.decodes.append(seq)
        else:
            self.chunks.append(Chunk(seq, start, tokens, admitted))

    def _admit(self) -> int:
        """Waiting requests, in order; returns what stopped it."""
        s = self.settings
        for seq in self.policy.waiting:
            if self.budget <= 0:
                return BY_BUDGET
            if len(self.running) >= s.max_num_seqs:
                return BY_SEQS
            have = self.free - (int(s.watermark * s.num_gpu_blocks) if self.running else 0)
            every = seq.prompt + seq.generated
            tokens = min(every, self.longest, self.budget)
            need = s.blocks(tokens)
            if (s.blocks(every) if s.scheduler_reserve_full_isl else need) > have:
                return BY_KV
            self._take(seq, 0, tokens, need, admitted=True)
            self.running.append(seq)
        return ADMITS


def _path(tokens: int, sizes: tuple[int, ...]) -> tuple[int, int]:
    """The captured size that holds this many tokens, or the eager path above the largest."""
    if not tokens or not sizes:
        return NO_GRAPH, -1
    at = bisect_left(sizes, tokens)
    return (CAPTURED, sizes[at]) if at < len(sizes) else (EAGER, tokens)
