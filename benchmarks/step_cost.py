"""What the recorder costs a step of a real engine: `vllm_steps.py`, `sglang_steps.py`, `transformers_steps.py`.

One process, and one batch that decodes. Blocks of steps alternate, with the hooks and without: each hook is taken out
and put back between two blocks, so that both kinds see the same batch, the same heap and, within a second, the same
machine. Of a quadruple (with, without, without, with, and the next one the other way round) the ratio of CPU times is
one sample, so that a drift cancels; what the hooks put off is written inside the block in which they saw it. Means are
geometric: noise that is the same in both makes the mean of ratios too large, by half their variance.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

__all__ = ["WARM", "Blocks", "Put", "Stepped", "asked", "mean_ratio", "taken_out"]

Put = Callable[[bool], None]
"""Puts a hook in (True), or takes it out."""
WARM = 20
"""Steps in which a batch gets through its prompts."""


class Stepped(Protocol):
    """An engine that is stepped by hand. left: steps until the batch's answers end."""

    left: int

    def step(self) -> object:
        """Take one step."""

    def fill(self) -> None:
        """Start a batch anew, and let it get through its prompts."""


class Blocks:
    """Samples of one engine, on the thread of its hooks, which are in by now. steps: of a block."""

    def __init__(self, hooks: Sequence[Put], steps: int) -> None:
        self.hooks, self.steps = hooks, steps
        self.later, self.recorder = in_heap("Later", "WholeRecorder")
        self.ratios: list[tuple[float, float]] = []
        """Of CPU time and of wall time, with over without."""
        self.wall, self.account, self.flushes = [0, 0], 0, list[int]()
        self._turn = True
        """Whether the next one begins with the hooks. Not turned by one that was given up, as at the end of a batch."""

    def take(self, engine: Stepped, quadruples: int) -> str:
        """Step an engine through so many quadruples. Returns what they said."""
        needed = 4 * (self.steps + 1)  # the first step of each block is not counted
        for _ in range(quadruples):
            if engine.left < needed:
                engine.fill()
            engine.left -= needed
            for _ in self.quadruple():
                engine.step()
        return self.told()

    def quadruple(self) -> Iterator[None]:
        """Take a sample. Each time that this yields the engine is to take a step; closed before its end it is none."""
        cpu, wall, account = [0, 0], [0, 0], 0
        try:
            for on in (self._turn, not self._turn, not self._turn, self._turn):
                self._put(on)
                yield
                self.later.flush()
                told, cpu0, wall0 = self.recorder.self_ns, time.thread_time_ns(), time.perf_counter_ns()
                for _ in range(self.steps):
                    yield
                if on:
                    self.flushes.append(-time.thread_time_ns())
                    self.later.flush()
                    self.flushes[-1] += time.thread_time_ns()
                    account += self.recorder.self_ns - told
                cpu[on] += time.thread_time_ns() - cpu0
                wall[on] += time.perf_counter_ns() - wall0
        finally:
            self._put(True)
        self.ratios.append((cpu[True] / cpu[False], wall[True] / wall[False]))
        self.wall = [a + b for a, b in zip(self.wall, wall, strict=True)]
        self.account += account
        self._turn = not self._turn

    def _put(self, on: bool) -> None:
        for put in self.hooks:
            put(on)

    def told(self) -> str:
        """What the quadruples said."""
        lines = []
        for index, name in enumerate(("CPU time of the engine's thread", "wall time")):
            ratios = [one[index] for one in self.ratios]
            mean, error = mean_ratio(ratios)
            lines.append(
                f"{name} a step, with over without: mean {mean:.4f} +- {error:.4f}, "
                f"median {statistics.median(ratios):.4f}, {len(ratios)} quadruples"
            )
        steps = 2 * self.steps * len(self.ratios)
        lines.append(
            f"{self.wall[0] / steps / 1e6:.2f} ms a step without; {steps:,} steps of each kind; "
            f"own account {self.account / steps / 1e3:.1f} us a step, {self.account / self.wall[1]:.3%}; "
            f"a flush of {self.steps}: {statistics.median(self.flushes) / 1e6:.2f} ms"
        )
        return "\n".join(lines)


def mean_ratio(ratios: Sequence[float]) -> tuple[float, float]:
    """The geometric mean, and its standard error."""
    logs = [math.log(one) for one in ratios]
    ratio = math.exp(statistics.mean(logs))
    return ratio, ratio * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan


def in_heap(*kinds: str) -> list[Any]:
    """An object of each of these classes; SGLang freezes its heap, and what is frozen is not found."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    objects = {type(one).__name__: one for one in gc.get_objects()}
    if frozen:
        gc.freeze()
    return [objects[kind] for kind in kinds]


def asked(told: str, model: str = "tiny", **switches: str) -> argparse.Namespace:
    """The command line. model: which of the tests' is meant. switches: what else it may say, and its meaning."""
    parser = argparse.ArgumentParser(description=told.split("\n\n")[0])
    parser.add_argument(
        "--home", type=Path, default=Path(sys.prefix).parent, help="what the tests' environment.py made"
    )
    parser.add_argument("--model", type=Path, help="a folder, as tests/tiny_model.py makes it; the tests' if not given")
    parser.add_argument("--quadruples", type=int, default=120)
    parser.add_argument("--steps", type=int, default=47, help="of a block")
    parser.add_argument("--rows", type=int, default=16, help="requests that decode")
    for name, meaning in switches.items():
        parser.add_argument(f"--{name}", action="store_true", help=meaning)
    given = parser.parse_args()
    given.model = given.model or given.home / model
    return given


def taken_out(owner: Any, name: str) -> Put:
    """Switch between a hook and what it wraps."""
    hook = vars(owner)[name]

    def put(on: bool) -> None:
        if on or isinstance(owner, type):
            setattr(owner, name, hook if on else hook.__wrapped__)
        else:
            vars(owner).pop(name, None)

    return put
