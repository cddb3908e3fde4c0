"""The scheduler of SGLang: what it batches, runs and emits, whom it retracts."""

from __future__ import annotations

import atexit
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from stallbook.adapters.device import Track, cuda_lane
from stallbook.adapters.later import CALL_NS, FEW, LONG_NS, Later, thread_cpu
from stallbook.adapters.process import Process
from stallbook.adapters.sglang import batches
from stallbook.adapters.sglang.runner import watch
from stallbook.adapters.sglang.steps import Overlapped
from stallbook.adapters.stamps import Stamps
from stallbook.adapters.steps import NO_GRAPH

__all__ = ["HEALTH", "Engine"]

HEALTH: Final = "HEALTH_CHECK"
"""How the ids of requests begin that nobody waits for but the server itself."""
_STEP: Final = "_stallbook_step"
"""The attribute of a batch's result that carries the step's number: the batch itself goes on to be the next one's."""
_GRAMMAR: Final = "grammar"
_KV, _SEQS, _BUDGET = 1, 2, 3
_PLANNED, _RAN, _EMITTED, _REPEATED, _RETRACTED, _GONE, _IDLE = range(7)

Plan = tuple[int, int, int, int, Track | None, Sequence[str] | None]
"""A step that is scheduled: number, start and end, CPU time after a rest, the device's track, who comes in with it."""


class Engine:
    """The hooks of one scheduler whose answer is waited for."""

    def __init__(self, scheduler: Any, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.scheduler = scheduler
        recorder = process.recorder
        if recorder is None or not recorder.on:
            return
        self.recorder = recorder
        self.stamps = Stamps(self.clock)
        self.steps = Overlapped(recorder, process.handles, self.stamps, False)
        self.batches, self.watch = batches.Batches(self.steps), batches.Watch()
        self.later = Later(self.work, recorder, self.hooks, self.clock, others=2)  # forward pass and sampling
        self.rested = True
        """Whether the thread had nothing to do since it was looked at last."""
        self.number = self.pending = 0
        """The step that was scheduled last; how many ran and have not emitted."""
        self.plan: Plan | None = None
        """Scheduled, and not kept yet."""
        self.took = 0
        """What that costs, as sampled now and then."""
        self.budget = -1
        """Prompt tokens of the last prefill."""
        self.track: Track | None = None
        self.steps.device = cuda_lane(self.hooks, self.clock)
        self.graph = watch(self.hooks, scheduler, self.stamps, self.steps, lambda: self.track)
        self.queued = False
        self.compiling: set[str] = set()
        wrap = self.hooks.wrap
        wrap(scheduler, "get_next_batch_to_run", self._get_next_batch)
        wrap(scheduler, "run_batch", self._run_batch)
        wrap(scheduler, "process_batch_result", self._process_batch_result)
        wrap(scheduler, "_add_request_to_queue", self._add_request_to_queue)
        wrap(scheduler, "send_abort_output", self._send_abort_output)
        process.told_hooks()
        self.work([])  # what is made at the first time is made before anyone waits
        atexit.register(self.later.flush)  # runs before the recorder closes, which was registered before

    # What runs in each step: as little as can be.

    def _get_next_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, count = self.clock, self.hooks, self.later, itertools.count(1)
        append, entries, device = later.append, later.entries, self.steps.device is not None

        @functools.wraps(original)
        def get_next_batch_to_run(*args: Any, **more: Any) -> Any:
            t0 = clock()
            plan = original(*args, **more)
            if hooks.on:
                try:
                    batch = getattr(plan, "batch_to_run", plan)
                    if batch:
                        number = self.number = next(count)
                        track = self.track = Track() if device else None
                        new = [one.rid for one in batch.reqs] if batch.forward_mode.is_extend() else None
                        t1 = clock()
                        cpu, self.rested = thread_cpu() if self.rested else -1, False
                        self.plan = number, t0, t1, cpu, track, new
                        if not entries:
                            self.took = clock() - t1 + CALL_NS
                    elif not self.pending:
                        self.rested = True
                        if entries:
                            append((_IDLE, None))
                            later.flush()
                            self.watch.clear()
                except Exception:
                    hooks.failed()
            return plan

        return get_next_batch_to_run

    def _run_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, graph = self.clock, self.hooks, self.later, self.graph
        append, entries = later.append, later.entries

        @functools.wraps(original)
        def run_batch(batch: Any, *args: Any, **more: Any) -> Any:
            number = self.number
            result = original(batch, *args, **more)
            if hooks.on:
                try:
                    if number:
                        t = clock()
                        ran = NO_GRAPH if graph is None else graph(batch, result)
                        append((_RAN, self.plan, number, ran))
                        self.plan = None
                        setattr(result, _STEP, number)
                        self.pending += 1
                        if len(entries) == 1:
                            later.first(t - self.took)
                except Exception:
                    hooks.failed()
            return result

        return run_batch

    def _process_batch_result(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, look = self.clock, self.hooks, self.later, self.watch.look
        append, entries, waits = later.append, later.entries, str(getattr(self.scheduler, "device", "")) != "cpu"

        @functools.wraps(original)
        def process_batch_result(batch: Any, result: Any, *args: Any, **more: Any) -> Any:
            t, wait = clock(), None
            if hooks.on:
                try:
                    if self.plan is not None:  # the next step does not run before this one is done with
                        append((_PLANNED, self.plan))
                        self.plan = None
                    if waits:
                        wait = batches.wait_of(result, clock)
                except Exception:
                    hooks.failed()
            returned = original(batch, result, *args, **more)
            if hooks.on:
                try:
                    if number := getattr(result, _STEP, 0):
                        self.pending -= 1
                        if wait is not None and wait.t:
                            t = wait.t
                        t1 = clock()
                        told = look(batch, result)
                        if told is None:
                            append((_REPEATED, number, t, t1, thread_cpu()))
                        else:
                            append((_EMITTED, number, told, t, t1, thread_cpu()))
                        if len(entries) > FEW or t1 - later.since > LONG_NS:
                            later.look(t1)
                except Exception:
                    hooks.failed()
            return returned

        return process_batch_result

    # What happens to requests.

    def handle(self, original: Callable[[], Any], request: Any) -> Any:
        """A request comes in; if it is not in the queue then, a grammar is compiled for it."""
        handle = -1
        try:
            self.queued = False
            if not request.rid.startswith(HEALTH):
                self.steps.comes_again(request.rid, self.later.flush)
                limit = getattr(request.sampling_params, "max_new_tokens", None)
                handle = self.process.arrived(
                    request.rid, len(request.input_ids or ()) or -1, -1 if limit is None else limit, self.clock()
                )
        except Exception:
            self.hooks.failed()
        result = original()
        try:
            if handle >= 0 and not self.queued:
                self.compiling.add(request.rid)
                self.recorder.hold(handle, _GRAMMAR)
        except Exception:
            self.hooks.failed()
        return result

    def _add_request_to_queue(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def add_request_to_queue(request: Any, *args: Any, **more: Any) -> Any:
            if self.hooks.on:
                try:
                    self.queued = True
                    if request.rid in self.compiling:
                        self.compiling.discard(request.rid)
                        self.recorder.release(self.process.handles.get(request.rid, -1), _GRAMMAR)
                except Exception:
                    self.hooks.failed()
            return original(request, *args, **more)

        return add_request_to_queue

    def retract(self, original: Callable[[], Any], request: Any) -> Any:
        """A request loses its cache."""
        lost = getattr(getattr(request, "kv", None), "kv_committed_len", None)
        result = original()
        try:
            if lost is None:
                lost = max(len(request.origin_input_ids) + len(request.output_ids) - 1, 0)
            self.later.append((_RETRACTED, request.rid, int(lost), self.clock()))
        except Exception:
            self.hooks.failed()
        return result

    def _send_abort_output(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def send_abort_output(abort: Any, request: Any, *args: Any, **more: Any) -> Any:
            result = original(abort, request, *args, **more)
            if self.hooks.on:
                try:
                    self.compiling.discard(request.rid)
                    self.later.append((_GONE, request.rid, self.clock()))
                except Exception:
                    self.hooks.failed()
            return result

        return send_abort_output

    # What is done with it, some steps at a time.

    def work(self, entries: list[Any]) -> None:
        """Write what the hooks saw."""
        steps, followed = self.steps, self.batches
        usual, self.watch.requests = self.watch.requests, ()  # if this fails, what comes next is not like anything
        steps.begin()
        for entry in entries:
            kind = entry[0]
            if kind == _RAN:
                _, plan, number, graph = entry
                if plan is not None:
                    self._planned(plan)
                steps.ran(number, graph)
            elif kind == _REPEATED:
                _, number, t, t1, cpu = entry
                followed.repeated(number, t, t1, cpu)
            elif kind == _EMITTED:
                self.budget = followed.emitted(*entry[1:])
            elif kind == _PLANNED:
                self._planned(entry[1])
            elif kind == _RETRACTED:
                steps.evict(*entry[1:])
            elif kind == _GONE:
                followed.left([entry[1]], entry[2])
            else:
                steps.rests()
        steps.write(self.clock(), self._blocked())
        self.watch.requests = usual

    def _planned(self, plan: Plan) -> None:
        number, t0, t1, cpu, track, new = plan
        self.steps.planned(number, t0, t1, cpu, track)
        if new is not None:
            self.batches.admitted(new, t1)

    def _blocked(self) -> int:
        """What keeps the first waiting request out."""
        scheduler = self.scheduler
        if not scheduler.waiting_queue:
            return 0
        if len(scheduler.running_batch.reqs) >= scheduler.max_running_requests:
            return _SEQS
        chunk = getattr(scheduler, "chunked_prefill_size", None)
        if scheduler.chunked_req is not None or (chunk and self.budget >= chunk):
            return _BUDGET
        return _KV
