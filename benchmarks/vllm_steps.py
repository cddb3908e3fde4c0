"""What the recorder costs a step of a real vLLM: `python benchmarks/vllm_steps.py`, where `make test-vllm` has run.

One process, the worker inside the engine core, and one batch that decodes. Blocks of steps alternate, with the hooks
and without: each hook is taken out and put back between two blocks, so that both kinds see the same batch, the same
heap and, within a second, the same machine. Of a quadruple (with, without, without, with) the ratio of CPU times is one
sample, so that a drift cancels; what the hooks put off is written inside the block in which they saw it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "vllm")]

from vllm_server import ENVIRONMENT, TWO  # noqa: E402

MOST = 3900
"""Tokens of an answer: the model's context is 4,096."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--home", type=Path, default=Path(sys.prefix).parent, help="what tests/vllm/environment.py made"
    )
    parser.add_argument("--quadruples", type=int, default=120)
    parser.add_argument("--steps", type=int, default=24, help="of a block")
    parser.add_argument("--rows", type=int, default=16, help="requests that decode")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(ENVIRONMENT | dict(TWO.environment) | {"STALLBOOK": f"{folder}/out.stall"})
        engine = Engine(asked.home / "tiny", asked.rows)
        samples = [engine.quadruple(asked.steps) for _ in range(asked.quadruples)]
    for index, name in enumerate(("CPU time of the engine's thread", "wall time")):
        ratios = [one[index] for one in samples]
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        print(
            f"{name} a step, with over without: mean {statistics.mean(ratios):.4f} +- {error:.4f}, "
            f"median {statistics.median(ratios):.4f}, {len(ratios)} quadruples"
        )
    print(
        f"{engine.wall[0] / engine.steps / 1e6:.2f} ms a step without; {engine.steps:,} steps of each kind; "
        f"own account {engine.account / engine.steps / 1e3:.1f} us a step, {engine.account / engine.wall[1]:.3%}"
    )


class Engine:
    """vLLM's engine, stepped by hand, and the hooks that its plugin put in."""

    def __init__(self, model: Path, rows: int) -> None:
        from vllm import LLM

        self.rows, self.served = rows, 0
        llm = LLM(
            model=str(model), dtype="bfloat16", enforce_eager=True, max_model_len=4096, max_num_batched_tokens=512,
            block_size=32, num_gpu_blocks_override=3000, enable_prefix_caching=False, disable_log_stats=True,
        )  # fmt: skip
        self.engine: Any = llm.llm_engine
        self.fill()
        self.hooks = hooks_of(self.engine)
        self.later, self.recorder = (
            next(one for one in gc.get_objects() if type(one).__name__ == name) for name in ("Later", "WholeRecorder")
        )
        self.steps, self.wall, self.account = 0, [0, 0], 0

    def fill(self) -> None:
        """Start a batch anew, and let it get through its prompts."""
        from vllm import SamplingParams

        for one in range(self.rows):
            limits = SamplingParams(max_tokens=MOST, ignore_eos=True, temperature=0.0)
            self.engine.add_request(f"r{self.served}-{one}", {"prompt_token_ids": [7 + one] * 16}, limits)
        self.served += 1
        self.left = MOST - 30
        for _ in range(20):
            self.engine.step()

    def quadruple(self, steps: int) -> tuple[float, float]:
        """Ratios of CPU and wall time."""
        if self.left < 4 * (steps + 1):
            while self.engine.has_unfinished_requests():
                self.engine.step()
            self.fill()
        self.left -= 4 * (steps + 1)
        spent = {True: [0, 0], False: [0, 0]}
        for on in (True, False, False, True):
            for put in self.hooks:
                put(on)
            self.engine.step()
            self.later.flush()
            told = self.recorder.self_ns
            cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
            for _ in range(steps):
                self.engine.step()
            if on:
                self.later.flush()
                self.account += self.recorder.self_ns - told
            spent[on][0] += time.thread_time_ns() - cpu
            spent[on][1] += time.perf_counter_ns() - wall
        self.steps += 2 * steps
        self.wall = [self.wall[on] + spent[bool(on)][1] for on in (0, 1)]
        return spent[True][0] / spent[False][0], spent[True][1] / spent[False][1]


def hooks_of(engine: Any) -> list[Callable[[bool], None]]:
    """How each hook that acts in a step is put in (True) and taken out."""
    import vllm.v1.utils as utils

    core = engine.engine_core.engine_core
    found = [taken_out(core.scheduler, name) for name in ("schedule", "update_from_output")]
    found.append(taken_out(type(engine.output_processor), "process_outputs"))
    ours = utils._PROFILER_FUNC

    def scopes(on: bool) -> None:
        utils._PROFILER_FUNC = ours if on else contextlib.nullcontext

    return [*found, scopes]


def taken_out(owner: Any, name: str) -> Callable[[bool], None]:
    """Switch between a hook and what it wraps."""
    hook = vars(owner)[name]

    def put(on: bool) -> None:
        if on or isinstance(owner, type):
            setattr(owner, name, hook if on else hook.__wrapped__)
        else:
            vars(owner).pop(name, None)

    return put


if __name__ == "__main__":
    main()
