"""Takes samples in a real scheduler's process: `sglang_steps.py` starts a server that finds this by `PYTHONPATH`.

It stands before `ingest_requests`, which each pass of the scheduler's loop begins with. A quadruple runs while one
batch decodes and nobody waits, and is given up where that ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from stallbook.adapters.imports import when_imported
from step_cost import WARM, Blocks, Put, taken_out


class Passes:
    """The passes of one scheduler. asked: quadruples, steps of a block, rows of the batch, and where the words go."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked, self.steady = asked, 0
        self.blocks: Blocks | None = None
        self.quadruple: Iterator[None] = iter(())

    def begins(self, scheduler: Any) -> None:
        """A pass begins."""
        if len(scheduler.running_batch.reqs) != self.asked["rows"] or scheduler.waiting_queue:
            self.steady, self.quadruple = 0, iter(())  # a generator that is let go of puts the hooks in again
            return
        self.steady += 1
        if self.steady < WARM:
            return
        if self.blocks is None:
            self.blocks = Blocks(hooks_of(scheduler), self.asked["steps"])
        if next(self.quadruple, self) is not self:
            return
        if len(self.blocks.ratios) >= self.asked["quadruples"]:
            Path(self.asked["out"]).write_text(self.blocks.told())
            self.asked["rows"] = -1
            return
        self.quadruple = self.blocks.quadruple()
        next(self.quadruple)


def hooks_of(scheduler: Any) -> list[Put]:
    """The hooks that act in a step."""
    runner = scheduler.tp_worker.model_runner
    found = [taken_out(scheduler, one) for one in ("get_next_batch_to_run", "run_batch", "process_batch_result")]
    return [*found, *(taken_out(runner, one) for one in ("forward", "sample"))]


def plant(module: ModuleType) -> None:
    """Stand before the scheduler's loop."""
    kind: Any = module.Scheduler
    ingest, passes = kind.ingest_requests, Passes(json.loads(os.environ["SGLANG_STEPS"]))

    def ingest_requests(scheduler: Any, *args: Any, **more: Any) -> Any:
        result = ingest(scheduler, *args, **more)
        passes.begins(scheduler)
        return result

    kind.ingest_requests = ingest_requests


when_imported("sglang.srt.managers.scheduler", plant)
