"""What the recorder costs a step of transformers' continuous batching: `python benchmarks/transformers_steps.py`, where
`make test-transformers` has run.

The steps are those of its generation thread, which takes the outputs from the queue too, as a program would; or, with
`--callbacks`, runs the event loop that hands them out, as `transformers serve` has one. See `step_cost.py` for how it
is measured.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from step_cost import WARM, Blocks, Put, asked, taken_out

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / name) for name in ("", "transformers")]

import cb_engines  # noqa: E402

import stallbook  # noqa: E402
from stallbook.adapters.transformers.routed import Loop  # noqa: E402

MOST = 331
"""Tokens of an answer: from some 400 on its tensors are so large that each step maps and faults in new memory."""


class Engine:
    """A batching manager, stepped on its own thread: see `Stepped`. loop: hands the outputs out; None: a queue."""

    def __init__(self, manager: Any, processor: Any, rows: int, loop: asyncio.AbstractEventLoop | None) -> None:
        self.manager, self.processor, self.rows, self.loop = manager, processor, rows, loop
        self.served = self.left = 0
        self.body = type(manager)._generation_loop_body.__wrapped__

    def step(self) -> None:
        """One step, and its outputs taken."""
        self.body(self.manager, self.processor, bootstrapping=False)
        if self.loop is not None:
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        while not self.manager.output_router.output_queue.empty():
            self.manager.get_result(timeout=1)

    def fill(self) -> None:
        """Start a batch anew, and let it get through its prompts."""
        while self.processor.has_pending_requests():
            self.step()
        for one in range(self.rows):
            name = f"r{self.served}-{one}"
            if self.loop is not None:
                self.loop.run_until_complete(self.registered(name))
            self.manager.add_request([7 + one] * 16, request_id=name, max_new_tokens=MOST, streaming=True)
        self.served += 1
        self.left = MOST - WARM - 10
        for _ in range(WARM):
            self.step()

    async def registered(self, name: str) -> None:
        """Give a request a callback, on the event loop."""
        self.manager.register_result_handler(name, id)


def hooks_of(manager: Any, processor: Any) -> list[Put]:
    """The hooks that act in a step."""
    runner = processor.model_runner
    return [
        taken_out(owner, name)
        for owner, names in (
            (type(manager), ("get_result",)),
            (type(processor), ("prepare_next_batch", "update_batch")),
            (type(processor.inputs_and_outputs), ("prepare_batch_tensors",)),
            (type(runner), ("compute_batch",)),
            (runner, ("_sample",)),
        )
        for name in names
    ] + [standing_in(manager.output_router.result_handlers)]


def standing_in(handlers: dict[str, Any]) -> Put:
    """Switch between the event loop and what stands in for it."""
    taken = dict[str, Loop]()

    def put(on: bool) -> None:
        for name, (callback, loop) in list(handlers.items()):
            if on and name in taken:
                handlers[name] = callback, taken.pop(name)
            elif not on and isinstance(loop, Loop):
                taken[name], handlers[name] = loop, (callback, loop._loop)

    return put


def main() -> None:
    """Measure and print."""
    told = asked(__doc__, cb_engines.MODEL.name, callbacks="outputs go to callbacks, on an event loop")
    os.environ.update(cb_engines.ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        stallbook.attach(f"{folder}/out.stall")
        manager = made(told.model)
        kind, errors = type(manager), list[BaseException]()

        def measured(manager: Any, processor: Any, bootstrapping: bool) -> bool:
            """The whole measurement, in place of the loop's first pass."""
            try:
                loop = asyncio.new_event_loop() if told.callbacks else None
                engine = Engine(manager, processor, told.rows, loop)
                engine.fill()
                print(Blocks(hooks_of(manager, processor), told.steps).take(engine, told.quadruples))
            except BaseException as error:
                errors.append(error)
            return False

        measured.__wrapped__ = kind._generation_loop_body  # type: ignore[attr-defined]
        kind._generation_loop_body = measured
        manager.start()
        manager._generation_thread.join()
        if errors:
            raise errors[0]


def made(model: Path) -> Any:
    """A manager with room for all of a batch."""
    import torch
    from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

    loaded = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32, attn_implementation="sdpa")
    config = ContinuousBatchingConfig(page_size=16, num_blocks=512, max_batch_tokens=128, max_requests_per_batch=32)
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=4096)
    return loaded.init_continuous_batching(generation_config=generation, continuous_batching_config=config)


if __name__ == "__main__":
    main()
