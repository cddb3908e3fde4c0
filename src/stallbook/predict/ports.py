"""What a simulated engine is handed: requests, what things cost, how fast the machine is, and a heap that is collected.

Costs are in ns at the speed 1. A speed of 1.1 is a machine on which everything takes 1.1 times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from stallbook.demo.scheduler import Plan

__all__ = ["NEVER_RAN", "Costs", "Heap", "NoHeap", "Pace", "Request", "SteadyPace"]

NEVER_RAN: Final = 1_000_000_000
"""So many steps ago the last prompt ran, before the first one."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a workload. `at_ns` counts from the start of the run; `tok_ns`: what tokenizing it takes.

    `enter_ns`: how long after that the engine can see it, where it comes through a process of its own.
    """

    name: str
    at_ns: int
    prompt: int
    max_new: int
    tok_ns: float = 0.0
    enter_ns: int = 0


class Costs(Protocol):
    """What the parts of a step take. Each gets the plan before it is committed."""

    @property
    def mixed(self) -> bool:
        """Chunks run inside `forward`, in the same pass as the decodes; else one by one before it, each a `prefill`."""

    def sched(self, step: Plan) -> float:
        """Planning, and what else comes before the passes."""

    def swap_out(self, tokens: int) -> float:
        """Copying a cache to the host."""

    def swap_in(self, tokens: int) -> float:
        """Copying it back."""

    def prefill(self, start: int, tokens: int) -> float:
        """One chunk; 0 where chunks are mixed in."""

    def forward(self, step: Plan, kv: int, since: int) -> float:
        """The forward pass of the decodes, over `kv` tokens of cache, their own included.

        since: how many steps ago a prompt last ran, which leaves the machine's caches to itself; 0 in the same step.
        """

    def output(self, tokens: int) -> float:
        """After the emission: what each token costs before the next step."""

    def close(self, step: Plan) -> float:
        """The rest of the step's bookkeeping."""


class Pace(Protocol):
    """How fast the machine is."""

    def speed(self, t_ns: int) -> float:
        """The factor on everything, `t_ns` after the start."""

    def wait(self, since_ns: int, t_ns: int) -> int:
        """How long an engine that worked all this time had to wait for a core in it."""

    def step(self, t_ns: int, work: float) -> float:
        """What one step adds: a factor on its passes and bookkeeping.

        work: what its pass takes at the speed 1, in ns; 0 where it has none.
        """

    def chunk(self, t_ns: int, work: float) -> float:
        """The same factor for a chunk of a prompt, or for the pass that it is mixed into."""


@dataclass(frozen=True, slots=True)
class SteadyPace:
    """A machine that holds still."""

    factor: float = 1.0

    def speed(self, t_ns: int) -> float:
        """See `Pace`."""
        return self.factor

    def wait(self, since_ns: int, t_ns: int) -> int:
        """See `Pace`."""
        return 0

    def step(self, t_ns: int, work: float) -> float:
        """See `Pace`."""
        return 1.0

    def chunk(self, t_ns: int, work: float) -> float:
        """See `Pace`."""
        return 1.0


class Heap(Protocol):
    """What is allocated, and when it is collected."""

    def allocate(self, tokens: int) -> tuple[int, float] | None:
        """A step that emitted so many tokens has ended: the generation of the collection that it set off, and ns."""


class NoHeap:
    """An engine whose language has no such thing."""

    def allocate(self, tokens: int) -> tuple[int, float] | None:
        """See `Heap`."""
        return None
