"""The engine core: what it schedules, runs and emits, whom it evicts."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.device import Track
from stallbook.adapters.later import FEW, LONG_NS, SAMPLED, Later, thread_cpu
from stallbook.adapters.noter import Noter
from stallbook.adapters.process import Process
from stallbook.adapters.settings import settings
from stallbook.adapters.stamps import Stamps
from stallbook.adapters.vllm import scopes
from stallbook.adapters.vllm.outputs import resumed, tokens_of
from stallbook.notes import vllm as notes
from stallbook.notes.words import BY_KV, BY_SEQS

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
        self.handles = process.handles
        self.out: set[str] = set()
        """Requests that were evicted and are not known to be back."""
        self.usual: Mapping[str, int] | None = None
        """The tokens scheduled in the last step that emitted, if each of its requests got the one that was; that step
        is `usual_step`."""
        self.changed = self.usual_step = 0
        """The last step with which requests came or went."""
        self.most_requests = getattr(scheduler, "max_num_running_reqs", sys.maxsize)
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
        self.begins(inside)
        with contextlib.suppress(TypeError):
            weakref.finalize(core, self._gone).atexit = False

    def begins(self, inside: Any) -> None:
        """Record from here on. inside: the worker, if it is in this process."""
        recorder, scheduler = self.recorder, self.scheduler
        self.apart = inside is None
        self.noter = Noter(recorder, self.stamps, self.hooks, self.clock)
        self.later = Later(self.work, recorder, self.hooks, self.clock)
        self.note = self.later.entries.extend
        self.track: Track | None = None
        if inside is not None:
            self.noter.device = scopes.take_over(self.hooks, self.stamps, recorder, "dispatch", lambda: self.track)
            scopes.watch_graphs(self.hooks, inside, self._dispatched)
        wrap = self.hooks.wrap
        wrap(scheduler, "schedule", self._schedule)
        wrap(scheduler, "update_from_output", self._update_from_output)
        wrap(scheduler, "_preempt_request", self._preempt_request)
        wrap(scheduler, "add_request", self._add_request)
        self.process.told_hooks()
        most = getattr(scheduler, "max_num_scheduled_tokens", sys.maxsize)
        self.noter.told_by("vllm", notes.names(self.apart), apart=self.apart, most=most)
        atexit.register(self.later.flush)  # runs before the recorder closes, which was registered before

    def _gone(self) -> None:
        """The program has no more use for the engine core, and may make another one: hold nothing of it."""
        self.later.flush()
        atexit.unregister(self.later.flush)
        scopes.give_back()

    def _dispatched(self, code: int, padded: int) -> None:
        self.noter.graphs.append((self.clock(), code, padded))

    # What runs in each step: as little as can be. What the engine made for a step is looked at while it is in the
    # cache, and not kept: later it would be cold, and freed cold.

    def _schedule(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, count = self.clock, self.hooks, self.later, itertools.count(1)
        note, apart, device, out = self.note, self.apart, self.noter.device is not None, self.out

        @functools.wraps(original)
        def schedule(*args: Any, **more: Any) -> Any:
            t0 = clock()
            output = original(*args, **more)
            if hooks.on:
                try:
                    t1, step, total = clock(), next(count), output.total_num_scheduled_tokens
                    output._stallbook_step = step  # STEP
                    if out or output.scheduled_new_reqs or output.finished_req_ids:
                        self.changes(output, step, t0, t1)
                    if not total:
                        later.flush()  # the engine rests
                        return output
                    note((notes.SCHEDULED, step, t0, t1, thread_cpu() if apart else 0, total))
                    if device:
                        self.track = self.noter.tracks[step] = Track()
                    if later.steps == SAMPLED:
                        later.first(t1)
                except Exception:
                    hooks.failed()
            return output

        return schedule

    def changes(self, output: Any, step: int, t0: int, t1: int) -> None:
        """Who was done before a step was scheduled in [t0, t1), who comes in with it, and who is back."""
        self.changed = step
        if done := output.finished_req_ids:
            handles = [handle for one in done if (handle := self.handles.pop(one, None)) is not None]
            for handle in handles:
                self.recorder.done(handle)
            self.note((notes.FINISHED, t0, len(handles), *handles))
            self.out.difference_update(done)
        if output.total_num_scheduled_tokens:
            placed = [*(one.req_id for one in output.scheduled_new_reqs), *resumed(output)]
            self.note((notes.PLACED, t1, *notes.each(self.of(placed), ())))
            self.out.difference_update(placed)

    def of(self, requests: Iterable[str]) -> Iterable[int]:
        """Their handles; -1 for one that is not recorded."""
        get = self.handles.get
        return (get(one, -1) for one in requests)

    def _update_from_output(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, note = self.clock, self.hooks, self.later, self.note
        device = self.noter.device is not None

        @functools.wraps(original)
        def update_from_output(scheduler_output: Any, *args: Any, **more: Any) -> Any:
            t = clock()  # the emission
            result = original(scheduler_output, *args, **more)
            if hooks.on:
                try:
                    t1, step, got = clock(), getattr(scheduler_output, STEP, 0), 0
                    scheduled = scheduler_output.num_scheduled_tokens
                    total = scheduler_output.total_num_scheduled_tokens
                    if not step or not total:
                        return result
                    for one in result.values():
                        for output in one.outputs:
                            if output.new_token_ids:
                                got += 1
                    each = total == got == len(scheduled)
                    if each and self.repeats(step, scheduled):
                        note((notes.REPEATED, step, t, t1, thread_cpu()))
                    else:
                        self.emitted(step, t, t1, scheduled, total, tokens_of(result))
                        self.usual = scheduled if each else None
                    self.usual_step = step
                    if device:
                        self.noter.ran(step, t)
                    later.steps += 1
                    if later.steps > FEW or t1 - later.since > LONG_NS:
                        later.look(t1)
                except Exception:
                    hooks.failed()
            return result

        return update_from_output

    def repeats(self, step: int, scheduled: Mapping[str, int]) -> bool:
        """Whether the requests of a step are those of the last one, in which each got its token."""
        usual = self.usual
        return usual is not None and not self.usual_step < self.changed <= step and scheduled.keys() == usual.keys()

    def emitted(
        self, step: int, t: int, t1: int, scheduled: Mapping[str, int], total: int, tokens: Mapping[str, int]
    ) -> None:  # fmt: skip
        """A step emitted that is not as the one before."""
        each = notes.each(self.of(scheduled), scheduled.values())
        each += notes.each(self.of(tokens), tokens.values())
        self.note((notes.EMITTED, step, t, t1, thread_cpu(), total, *each))

    def _preempt_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def preempt(request: Any, *args: Any, **more: Any) -> Any:
            lost = getattr(request, "num_computed_tokens", -1)
            result = original(request, *args, **more)
            if self.hooks.on:
                try:
                    self.out.add(request.request_id)
                    self.note((notes.EVICTED, self.handles.get(request.request_id, -1), int(lost), self.clock()))
                except Exception:
                    self.hooks.failed()
            return result

        return preempt

    def _add_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def add_request(request: Any, *args: Any, **more: Any) -> Any:
            if self.hooks.on:
                try:
                    limit = request.max_tokens if isinstance(request.max_tokens, int) else -1
                    self.process.arrived(request.request_id, request.num_prompt_tokens, limit, self.clock())
                except Exception:
                    self.hooks.failed()
            return original(request, *args, **more)

        return add_request

    # What is done with it, some steps at a time.

    def work(self, entries: list[int]) -> None:
        """Write what the hooks saw. Each such record says in full who is in its first batch."""
        self.usual = None
        self.noter.write(entries, self._blocked)

    def _blocked(self) -> int:
        """What keeps the first waiting request out; -1 where this scheduler's queues have other names."""
        waiting, running = (getattr(self.scheduler, name, None) for name in ("waiting", "running"))
        if waiting is None or running is None:
            return -1
        if not waiting:
            return 0
        return BY_SEQS if len(running) >= self.most_requests else BY_KV
