"""Looks on, beside the adapter, as a real scheduler runs its batches; a server under test finds it by `PYTHONPATH`.

Each result is known by its own identity. A line in `SGLANG_SPY` for each: when its batch ran, when it was processed,
what was in it and by how much each answer grew; a line for each collection, of which one is planted now and then where
a batch is about to run.
"""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from stallbook.adapters.imports import when_imported

EACH = 90
"""So many batches from one planted collection to the next."""
HEAP = 300_000
"""Objects that it has to look at, for SGLang freezes its own."""


class Spy:
    """What is seen of one scheduler."""

    def __init__(self) -> None:
        self.file = Path(os.environ["SGLANG_SPY"]).open("a", buffering=1)  # noqa: SIM115  # as long as the process
        self.known: dict[int, tuple[Any, int, int, int]] = {}
        self.heap: list[list[int]] = [[] for _ in range(HEAP)]
        self.runs = self.since = 0
        gc.callbacks.append(self.collects)

    def tell(self, **what: Any) -> None:
        """Write a line."""
        self.file.write(json.dumps(what) + "\n")

    def collects(self, phase: str, info: dict[str, int]) -> None:
        """A collection begins or ends."""
        if phase == "start":
            self.since = time.perf_counter_ns()
        else:
            self.tell(collected=[self.since, time.perf_counter_ns()])

    def ran(self, run: Any, scheduler: Any, batch: Any, *args: Any, **more: Any) -> Any:
        """A batch runs."""
        t0 = time.perf_counter_ns()
        rows = sum(batch.extend_lens) if batch.forward_mode.is_extend() else len(batch.reqs)
        self.runs += 1
        if self.runs % EACH == 0:
            gc.collect()
        result = run(scheduler, batch, *args, **more)
        self.known[id(result)] = result, rows, t0, time.perf_counter_ns()  # kept, so that no other has its identity
        return result

    def processed(self, process: Any, scheduler: Any, batch: Any, result: Any, *args: Any, **more: Any) -> Any:
        """A result is looked at."""
        at = time.perf_counter_ns()
        _, rows, *ran = self.known.pop(id(result))
        requests = list(batch.reqs)
        before = [len(one.output_ids) for one in requests]
        returned = process(scheduler, batch, result, *args, **more)
        grown = {one.rid: len(one.output_ids) - n for one, n in zip(requests, before, strict=True)}
        self.tell(ran=ran, at=at, rows=rows, grown=grown)
        return returned


def plant(module: ModuleType) -> None:
    """Stand before the scheduler's functions."""
    kind: Any = module.Scheduler
    run, process, found = kind.run_batch, kind.process_batch_result, list[Spy]()

    def run_batch(scheduler: Any, *args: Any, **more: Any) -> Any:
        if not found:
            found.append(Spy())
        return found[0].ran(run, scheduler, *args, **more)

    def process_batch_result(scheduler: Any, *args: Any, **more: Any) -> Any:
        return found[0].processed(process, scheduler, *args, **more)

    kind.run_batch, kind.process_batch_result = run_batch, process_batch_result


when_imported("sglang.srt.managers.scheduler", plant)
