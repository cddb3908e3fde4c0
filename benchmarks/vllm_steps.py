"""What the recorder costs a step of a real vLLM: `python benchmarks/vllm_steps.py`, where `make test-vllm` has run.

The worker is inside the engine core. See `step_cost.py` for how it is measured.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from step_cost import WARM, Blocks, Put, asked, taken_out

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "vllm")]

from vllm_server import ENVIRONMENT, TWO  # noqa: E402

MOST = 3900
"""Tokens of an answer: the model's context is 4,096."""


class Engine:
    """vLLM's engine: see `Stepped`."""

    def __init__(self, model: Path, rows: int) -> None:
        from vllm import LLM

        self.rows, self.served, self.left = rows, 0, 0
        llm = LLM(
            model=str(model), dtype="bfloat16", enforce_eager=True, max_model_len=4096, max_num_batched_tokens=512,
            block_size=32, num_gpu_blocks_override=3000, enable_prefix_caching=False, disable_log_stats=True,
        )  # fmt: skip
        self.engine: Any = llm.llm_engine

    def step(self) -> None:
        """Take one step."""
        self.engine.step()

    def fill(self) -> None:
        """Start a batch anew, and let it get through its prompts."""
        from vllm import SamplingParams

        while self.engine.has_unfinished_requests():
            self.step()
        for one in range(self.rows):
            limits = SamplingParams(max_tokens=MOST, ignore_eos=True, temperature=0.0)
            self.engine.add_request(f"r{self.served}-{one}", {"prompt_token_ids": [7 + one] * 16}, limits)
        self.served += 1
        self.left = MOST - WARM - 10
        for _ in range(WARM):
            self.step()


def hooks_of(engine: Any) -> list[Put]:
    """The hooks that act in a step."""
    import vllm.v1.utils as utils

    core = engine.engine_core.engine_core
    found = [taken_out(core.scheduler, name) for name in ("schedule", "update_from_output")]
    found.append(taken_out(type(engine.output_processor), "process_outputs"))
    ours = utils._PROFILER_FUNC

    def scopes(on: bool) -> None:
        utils._PROFILER_FUNC = ours if on else contextlib.nullcontext

    return [*found, scopes]


def main() -> None:
    """Measure and print."""
    told = asked(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(ENVIRONMENT | dict(TWO.environment) | {"STALLBOOK": f"{folder}/out.stall"})
        engine = Engine(told.model, told.rows)
        engine.fill()
        print(Blocks(hooks_of(engine.engine), told.steps).take(engine, told.quadruples))


if __name__ == "__main__":
    main()
