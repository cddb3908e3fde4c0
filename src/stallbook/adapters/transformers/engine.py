"""The generation thread: what it schedules, runs and emits, whom it evicts.

A program may make one batching manager after another, each with a thread of its own: one log holds them all. Of two
that run at once the second is not recorded.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection
from threading import get_ident
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.device import Track
from stallbook.adapters.later import FEW, LONG_NS, Later, thread_cpu
from stallbook.adapters.process import Process
from stallbook.adapters.settings import settings
from stallbook.adapters.stamps import Stamps
from stallbook.adapters.steps import Steps
from stallbook.adapters.transformers import requests, runner
from stallbook.adapters.transformers.batches import EMITTED, SCHEDULED, Batches
from stallbook.adapters.transformers.frontend import Frontend

__all__ = ["Engine", "install"]

_MANAGER: Final = "ContinuousBatchingManager"
_SETTINGS: Final = {
    "": (
        "page_size", "num_blocks", "max_batch_tokens", "max_memory_percent", "max_requests_per_batch",
        "max_blocks_per_request", "allow_block_sharing", "use_async_batching", "use_cuda_graph", "scheduler_type",
        "safety_margin", "cpu_offload_space", "default_compile_level", "q_padding_interval_size", "max_queue_size",
    )
}  # fmt: skip
_OTHERS: Final = 5
"""Hooks of a step that leave no entry: its batch is laid out, run, sampled, back; who was cancelled."""
_WAITING: Final = (0, 3)
"""`RequestStatus` of a request that gets none of the tokens in flight: pending, finished."""


def install(module: ModuleType, process: Process) -> Engine:
    """Hook the loop of a batching manager, and the making of what it runs."""
    engine, manager = Engine(process), getattr(module, _MANAGER, None)
    hooks = process.hooks
    if manager is not None:
        hooks.wrap(manager, "_run_generation_loop", engine.looping)
        hooks.wrap(manager, "_create_batch_processor", engine.made)
        for name in ("register_result_handler", "get_result"):
            hooks.wrap(manager, name, getattr(engine.frontend, name))
    if not hooks.has(f"{_MANAGER}._run_generation_loop") or not hooks.has(f"{_MANAGER}._create_batch_processor"):
        print(f"stallbook: not recording: {process.engine} has no {_MANAGER} with a loop of its own", file=sys.stderr)
    return engine


class Engine:
    """The hooks of one process's generation thread. thread: which one that is, 0 while none runs."""

    def __init__(self, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.frontend = process.frontend = process.frontend or Frontend(process)
        self.session = self.count = 0
        self.steps: Steps | None = None
        self.later: Later | None = None
        self._forget()
        process.after_fork.append(self._forked)

    def _forked(self) -> None:
        """A child of a process that has recorded: its hooks write to a log that is not its own."""
        self.hooks.on = self.hooks.on and not self.session
        self._forget()

    def _forget(self) -> None:
        """Nothing runs: hold on to none of the engine's objects."""
        self.processor: Any = None
        self.scheduler: Any = None
        self.offloader: Any = None
        self.runner: Any = None
        self.inputs: tuple[Any, ...] = ()
        """Where batches are laid out: one, or two where the next is made while one runs."""
        self.thread = 0
        self.graphs: runner.Graphs | None = None
        self.tensors = 0
        self.batch: list[Any] = []
        self.emission: tuple[Any, int, Collection[str]] | None = None
        self.ended: list[str] = []
        self.batches: Batches | None = None
        self.updating = self.offloading = False
        self.windows: list[bytes] = []
        self.track: Track | None = None

    # The loop begins and ends.

    def looping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The thread's whole life."""

        @functools.wraps(original)
        def run_generation_loop(manager: Any, *args: Any, **more: Any) -> Any:
            mine = self.hooks.on and not self.thread and getattr(manager, "is_tp_driver", True)
            if mine:
                self.thread = get_ident()
            try:
                return original(manager, *args, **more)
            finally:
                if mine:
                    self.ends()

        return run_generation_loop

    def ends(self) -> None:
        """The thread is about to end: write what waits."""
        try:
            if self.later is not None and self.processor is not None:
                self.later.flush()
                self.frontend.write(last=True)
        except Exception:
            self.hooks.failed()
        runner.undo(self)
        self._forget()

    def made(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What runs the batches stands."""

        @functools.wraps(original)
        def create_batch_processor(manager: Any, *args: Any, **more: Any) -> Any:
            result = original(manager, *args, **more)
            if self.hooks.on and self.thread == get_ident():
                try:
                    self.adopts(manager, result)
                except Exception:
                    self.hooks.failed()
            return result

        return create_batch_processor

    def adopts(self, manager: Any, processor: Any) -> None:
        """Hook the classes of its parts, unless an earlier one was of the same, and record from here on."""
        config = settings(manager.continuous_batching_config, _SETTINGS)
        lacking = [] if hasattr(processor.offloading_manager, "offload_requests") else ["evictions"]
        facts = {"layout": "generation thread", "device": str(getattr(processor, "model_device", ""))}
        self.process.become_engine(0, config, "step", lacking, **facts)
        recorder = self.process.recorder
        if recorder is None or not recorder.on:
            self.hooks.on = False
            return
        self.recorder = recorder
        if self.steps is None or self.later is None:
            self.stamps = Stamps(self.clock)
            self.steps = Steps(recorder, self.process.handles, self.stamps, apart=False, handoff="runner")
            self.later = Later(self.work, recorder, self.hooks, self.clock, _OTHERS)
        self.steps.renew()
        self.frontend.write()  # what was handed out since the last manager's end
        self.session += 1
        self.scheduler, self.offloader = processor.scheduler, processor.offloading_manager
        self.batches = Batches(self.steps, self.frontend, processor, self.session)
        runner.watch(self, processor)
        requests.watch(self)
        wrap, kind = self.hooks.wrap, type(processor)
        wrap(kind, "prepare_next_batch", self._prepare_next_batch)
        wrap(kind, "update_batch", self._update_batch)
        self.process.told_hooks()
        self.processor = processor

    # What runs in each step: as little as can be.

    def _prepare_next_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later = self.clock, self.hooks, self.later
        assert later is not None
        entries = later.entries

        @functools.wraps(original)
        def prepare_next_batch(processor: Any, *args: Any, **more: Any) -> Any:
            t0 = clock()
            found = original(processor, *args, **more)
            t1 = clock()
            if hooks.on and processor is self.processor and (batches := self.batches) is not None:
                try:
                    if found:
                        self.count += 1
                        plan = batches.takes_off(self.batch, self.count)
                        later.append((SCHEDULED, plan, self.count, t0, self.tensors, self.track, self.windows))
                        self.windows = []
                        if len(entries) == 1:
                            later.first(t1)
                    else:
                        self.rests()
                except Exception:
                    hooks.failed()
            return found

        return prepare_next_batch

    def rests(self) -> None:
        """There is nothing to run."""
        self.windows = []
        if self.later is not None and (self.later.entries or self.frontend.waits):
            self.later.flush()

    def laid_out(self, batch: list[Any], t: int) -> None:
        """A batch's tensors were made from `t` on."""
        self.batch, self.tensors = batch, t

    def came_back(self, batch: list[Any], t: int) -> None:
        """The tokens of a batch are here."""
        without: Collection[str] = ()
        if len(self.inputs) > 1:  # while it ran, some of its requests finished or lost their cache
            without = {one.state.request_id for one in batch if one.state.status in _WAITING}
        self.emission = batch, t, without

    def _update_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later = self.clock, self.hooks, self.later
        assert later is not None
        entries = later.entries

        @functools.wraps(original)
        def update_batch(processor: Any, *args: Any, **more: Any) -> Any:
            if not hooks.on or processor is not self.processor:
                return original(processor, *args, **more)
            self.updating = True
            try:
                result = original(processor, *args, **more)
            finally:
                self.updating = False
            try:
                t1, emission = clock(), self.emission
                if emission is not None and self.batches is not None:
                    ended, self.ended, self.emission = self.ended, [], None
                    batch, t, without = emission
                    step, plan = self.batches.lands(batch)
                    if step:
                        later.append((EMITTED, step, plan, t, without, t1, thread_cpu(), ended))
                    elif ended:
                        later.append((requests.FINISHED, ended, t1))
                    if len(entries) > FEW or t1 - later.since > LONG_NS:
                        later.look(t1)
            except Exception:
                hooks.failed()
            return result

        return update_batch

    def work(self, entries: list[Any]) -> None:
        """Write what the hooks saw."""
        if self.batches is not None:
            self.batches.work(entries)
