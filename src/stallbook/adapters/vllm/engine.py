"""The engine core: what it schedules, runs and emits, whom it evicts."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.device import Track
from stallbook.adapters.later import FEW, LONG_NS, Later, thread_cpu
from stallbook.adapters.process import Process
from stallbook.adapters.settings import settings
from stallbook.adapters.stamps import Stamps
from stallbook.adapters.steps import Steps
from stallbook.adapters.vllm import scopes

__all__ = ["STEP", "Engine", "install"]

STEP: Final = "_stallbook_step"
"""The attribute of a `SchedulerOutput` that carries the step's number, to a worker in another process too."""
_SETTINGS: Final = {
    "scheduler_config": (
        "max_num_seqs", "max_num_active_seqs", "max_num_batched_tokens", "max_num_scheduled_tokens",
        "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive", "scheduler_reserve_full_isl",
        "async_scheduling", "policy", "watermark", "stream_interval",
    ),
    "cache_config": (
        "block_size", "num_gpu_blocks", "enable_prefix_caching", "gpu_memory_utilization", "kv_cache_memory_bytes",
        "cache_dtype", "kv_offloading_size",
    ),
    "parallel_config": (
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "_api_process_count", "numa_bind",
        "numa_bind_cpus",
    ),
    "compilation_config": ("max_cudagraph_capture_size", "cudagraph_capture_sizes"),
    "model_config": (
        "max_model_len", "dtype", "enforce_eager", "quantization", "skip_tokenizer_init", "renderer_num_workers",
    ),
    "lora_config": ("max_loras", "max_cpu_loras"),
    "observability_config": ("jit_monitor_mode",),
}  # fmt: skip
_KV, _SEQS, _BUDGET = 1, 2, 3
_SCHEDULED, _EMITTED, _EVICTED = range(3)

Emission = tuple[Mapping[str, int], int, Mapping[str, int]]
"""Tokens that were scheduled for each request, all of them, and how many each got."""


def install(module: ModuleType, process: Process) -> None:
    """Hook the making of an engine core and its loop: once it stands, its scheduler can be hooked.

    A spawned child loads its plugins while the engine core is being made, too late for the first of these.
    """

    def begin(core: Any, new: bool = False) -> None:
        try:
            if process.hooks.on and not process.role:
                Engine(core, process)
            elif process.hooks.on and new and process.role == "engine":
                process.one_more()
        except Exception:
            process.hooks.failed()

    def made(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init(self: Any, *args: Any, **more: Any) -> Any:
            result = original(self, *args, **more)
            begin(self, new=True)
            return result

        return init

    def looping(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run_busy_loop(self: Any, *args: Any, **more: Any) -> Any:
            begin(self)
            return original(self, *args, **more)

        return run_busy_loop

    for name, method, make in (
        ("EngineCore", "__init__", made), ("EngineCoreProc", "run_busy_loop", looping),
        ("DPEngineCoreProc", "run_busy_loop", looping),
    ):  # fmt: skip
        if (owner := getattr(module, name, None)) is not None:
            process.hooks.wrap(owner, method, make)


class Engine:
    """The hooks of one engine core."""

    def __init__(self, core: Any, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.scheduler = scheduler = core.scheduler
        for undo in process.undo:
            undo()  # the hooks of a worker that turned out to be the engine's own
        process.undo.clear()  # they hold it, and so the model
        self.stamps = Stamps(self.clock)
        self.full = False
        """Whether the last step took all the tokens that one may take."""
        self.out: set[str] = set()
        """Requests that were evicted and are not known to be back."""
        self.usual: Emission | None = None
        """The last step's, if each request got the one token that was scheduled for it. Kept for all that repeat it."""
        self.most_tokens, self.most_requests = (
            getattr(scheduler, name, sys.maxsize) for name in ("max_num_scheduled_tokens", "max_num_running_reqs")
        )
        executor = core.model_executor
        inside = getattr(executor, "driver_worker", None)
        index = int(getattr(core, "engine_index", 0) or 0)
        layout = "worker inside the engine core" if inside is not None else "workers as processes"
        facts = {
            "layout": layout, "engine_index": index, "executor": type(executor).__name__,
            "step_function": getattr(getattr(core, "step_fn", None), "__name__", ""),
        }  # fmt: skip
        lacking = [] if hasattr(scheduler, "_preempt_request") else ["evictions"]
        process.become_engine(
            index, settings(core.vllm_config, _SETTINGS), "step" if inside is not None else "segment", lacking, **facts
        )
        recorder = process.recorder
        if recorder is None or not recorder.on:
            return
        self.recorder = recorder
        self.steps = Steps(recorder, process.handles, self.stamps, inside is None)
        self.later = Later(self.work, recorder, self.hooks, self.clock)
        self.track: Track | None = None
        if inside is not None:
            self.steps.device = scopes.take_over(self.hooks, self.stamps, recorder, "dispatch", lambda: self.track)
            scopes.watch_graphs(self.hooks, inside, self._dispatched)
        wrap = self.hooks.wrap
        wrap(scheduler, "schedule", self._schedule)
        wrap(scheduler, "update_from_output", self._update_from_output)
        wrap(scheduler, "_preempt_request", self._preempt_request)
        wrap(scheduler, "add_request", self._add_request)
        process.told_hooks()
        atexit.register(self.later.flush)  # runs before the recorder closes, which was registered before
        with contextlib.suppress(TypeError):
            weakref.finalize(core, self._gone).atexit = False

    def _gone(self) -> None:
        """The program has no more use for the engine core, and may make another one: hold nothing of it."""
        self.later.flush()
        atexit.unregister(self.later.flush)
        scopes.give_back()

    def _dispatched(self, code: int, padded: int) -> None:
        self.steps.graphs.append((self.clock(), code, padded))

    # What runs in each step: as little as can be. What the engine made for a step is looked at while it is in the
    # cache, and not kept: later it would be cold, and freed cold.

    def _schedule(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, count = self.clock, self.hooks, self.later, itertools.count(1)
        append, apart, device = later.append, self.steps.apart, self.steps.device is not None
        entries, out = later.entries, self.out

        @functools.wraps(original)
        def schedule(*args: Any, **more: Any) -> Any:
            t0 = clock()
            output = original(*args, **more)
            if hooks.on:
                try:
                    t1, step, total = clock(), next(count), output.total_num_scheduled_tokens
                    output._stallbook_step = step  # STEP
                    track = self.track = Track() if device else None
                    cpu = thread_cpu() if apart else 0
                    told = output if out or output.scheduled_new_reqs or output.finished_req_ids else None
                    append((_SCHEDULED, step, total, t0, t1, track, cpu, told))
                    if not total:
                        later.flush()  # the engine rests
                    elif len(entries) == 1:
                        later.first(t1)
                except Exception:
                    hooks.failed()
            return output

        return schedule

    def _update_from_output(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, append, entries = self.clock, self.hooks, self.later, self.later.append, self.later.entries

        @functools.wraps(original)
        def update_from_output(scheduler_output: Any, *args: Any, **more: Any) -> Any:
            t = clock()  # the emission
            result = original(scheduler_output, *args, **more)
            if hooks.on:
                try:
                    t1, step, got = clock(), getattr(scheduler_output, STEP, 0), 0
                    scheduled = scheduler_output.num_scheduled_tokens
                    total = scheduler_output.total_num_scheduled_tokens
                    for one in result.values():
                        for output in one.outputs:
                            if output.new_token_ids:
                                got += 1
                    each, emission = total == got == len(scheduled), self.usual
                    if emission is None or not each or scheduled.keys() != emission[0].keys():
                        emission = scheduled, total, _tokens(result)
                        self.usual = emission if each else None
                    if step and total:
                        append((_EMITTED, step, t, t1, thread_cpu(), *emission))
                    if len(entries) > FEW or t1 - later.since > LONG_NS:
                        later.look(t1)
                except Exception:
                    hooks.failed()
            return result

        return update_from_output

    def _preempt_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def preempt(request: Any, *args: Any, **more: Any) -> Any:
            lost = getattr(request, "num_computed_tokens", -1)
            result = original(request, *args, **more)
            if self.hooks.on:
                try:
                    self.out.add(request.request_id)
                    self.later.append((_EVICTED, request.request_id, lost, self.clock()))
                except Exception:
                    self.hooks.failed()
            return result

        return preempt

    def _add_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def add_request(request: Any, *args: Any, **more: Any) -> Any:
            if self.hooks.on:
                try:
                    self.steps.comes_again(request.request_id, self.later.flush)
                    limit = request.max_tokens if isinstance(request.max_tokens, int) else -1
                    self.process.arrived(request.request_id, request.num_prompt_tokens, limit, self.clock())
                except Exception:
                    self.hooks.failed()
            return original(request, *args, **more)

        return add_request

    # What is done with it, some steps at a time.

    def work(self, entries: list[Any]) -> None:
        """Write what the hooks saw."""
        steps = self.steps
        steps.begin()
        for entry in entries:
            if entry[0] == _SCHEDULED:
                _, step, total, t0, t1, track, cpu, told = entry
                if told is not None:
                    self._changes(told, t0, t1)
                if total:
                    self.full = total >= self.most_tokens
                    steps.scheduled(step, t0, t1, track, cpu)
            elif entry[0] == _EMITTED:
                steps.emitted(*entry[1:])
            else:
                self.out.add(entry[1])  # once more: since the hook saw it, the return before may have been told
                steps.evict(*entry[1:])
        steps.write(self.clock(), self._blocked())

    def _blocked(self) -> int:
        """What keeps the first waiting request out; -1 where this scheduler's queues have other names."""
        waiting, running = (getattr(self.scheduler, name, None) for name in ("waiting", "running"))
        if waiting is None or running is None:
            return -1
        if not waiting:
            return 0
        if self.full:
            return _BUDGET
        return _SEQS if len(running) >= self.most_requests else _KV

    def _changes(self, output: Any, t0: int, t1: int) -> None:
        """Who was done before a step was scheduled in [t0, t1), who comes in with it, and who is back."""
        if done := output.finished_req_ids:
            self.steps.finished(done, t0)
            self.out.difference_update(done)
        if output.total_num_scheduled_tokens:
            placed = [*(one.req_id for one in output.scheduled_new_reqs), *_resumes(output)]
            self.steps.admitted(placed, t1)
            self.out.difference_update(placed)


def _resumes(output: Any) -> Collection[str]:
    """Requests that are back after an eviction."""
    cached = output.scheduled_cached_reqs
    try:
        return cached.resumed_req_ids  # type: ignore[no-any-return]
    except AttributeError:  # before 0.11
        flags = getattr(cached, "resumed_from_preemption", ())
        return [name for name, is_back in zip(cached.req_ids, flags, strict=False) if is_back]


def _tokens(result: Mapping[int, Any]) -> dict[str, int]:
    """How many tokens each request got."""
    every = (o for one in result.values() for o in one.outputs)
    return {o.request_id: len(o.new_token_ids) for o in every if o.new_token_ids}
