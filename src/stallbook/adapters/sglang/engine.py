"""The scheduler of SGLang: what it batches, runs and emits, whom it retracts."""

from __future__ import annotations

import atexit
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from stallbook.adapters.device import Track, cuda_lane
from stallbook.adapters.later import CALL_NS, FEW, LONG_NS, SAMPLED, Later, thread_cpu
from stallbook.adapters.noter import Noter
from stallbook.adapters.process import Process
from stallbook.adapters.sglang import batches
from stallbook.adapters.sglang.runner import watch
from stallbook.adapters.stamps import Stamps
from stallbook.notes import sglang as notes
from stallbook.notes.words import BY_BUDGET, BY_KV, BY_SEQS

__all__ = ["HEALTH", "Engine"]

HEALTH: Final = "HEALTH_CHECK"
"""How the ids of requests begin that nobody waits for but the server itself."""
_STEP: Final = "_stallbook_step"
"""The attribute of a batch's result that carries the step's number: the batch itself goes on to be the next one's."""
_GRAMMAR: Final = "grammar"


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
        self.handles = process.handles
        self.noter = Noter(recorder, self.stamps, self.hooks, self.clock)
        self.watch = batches.Watch(self.handles)
        self.later = Later(self.work, recorder, self.hooks, self.clock, others=2)  # forward pass and sampling
        self.note = self.later.entries.extend
        self.rested = True
        """Whether the thread had nothing to do since it was looked at last."""
        self.number = self.pending = 0
        """The step that was scheduled last; how many ran and have not emitted."""
        self.took = 0
        """What the hook of a step's scheduling costs, as sampled now and then."""
        self.track: Track | None = None
        self.noter.device = cuda_lane(self.hooks, self.clock)
        self.graph = watch(self.hooks, scheduler, self.stamps, recorder, self.noter.device, lambda: self.track)
        self.queued = False
        self.compiling: set[str] = set()
        wrap = self.hooks.wrap
        wrap(scheduler, "get_next_batch_to_run", self._get_next_batch)
        wrap(scheduler, "run_batch", self._run_batch)
        wrap(scheduler, "process_batch_result", self._process_batch_result)
        wrap(scheduler, "_add_request_to_queue", self._add_request_to_queue)
        wrap(scheduler, "send_abort_output", self._send_abort_output)
        process.told_hooks()
        chunk = getattr(scheduler, "chunked_prefill_size", None)
        self.noter.told_by("sglang", notes.NAMES, chunk=chunk if isinstance(chunk, int) else 0)
        atexit.register(self.later.flush)  # runs before the recorder closes, which was registered before

    # What runs in each step: as little as can be.

    def _get_next_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, count = self.clock, self.hooks, self.later, itertools.count(1)
        note, entries, device = self.note, later.entries, self.noter.device is not None

        @functools.wraps(original)
        def get_next_batch_to_run(*args: Any, **more: Any) -> Any:
            t0 = clock()
            plan = original(*args, **more)
            if hooks.on:
                try:
                    batch = getattr(plan, "batch_to_run", plan)
                    if batch:
                        t1 = clock()
                        number = self.number = next(count)
                        cpu, self.rested = thread_cpu() if self.rested else -1, False
                        note((notes.PLANNED, number, t0, t1, cpu))
                        if batch.forward_mode.is_extend():
                            self.comes_in(batch, t1)
                        if device:
                            self.track = self.noter.tracks[number] = Track()
                        if later.steps == SAMPLED:
                            self.took = clock() - t1 + CALL_NS
                    elif not self.pending:
                        self.rested = True
                        if entries:
                            note((notes.IDLE,))
                            later.flush()
                            self.watch.clear()
                            self.noter.tracks.clear()
                except Exception:
                    hooks.failed()
            return plan

        return get_next_batch_to_run

    def comes_in(self, batch: Any, t: int) -> None:
        """A step that prefills was scheduled."""
        new = [self.handles.get(one.rid, -1) for one in batch.reqs]
        self.note((notes.COMES_IN, t, len(new), *new))

    def _run_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, graph, note = self.clock, self.hooks, self.later, self.graph, self.note

        @functools.wraps(original)
        def run_batch(batch: Any, *args: Any, **more: Any) -> Any:
            number = self.number
            result = original(batch, *args, **more)
            if hooks.on:
                try:
                    if number:
                        t = clock()
                        if graph is not None:
                            note((notes.RAN, number, *graph(batch, result)))
                        setattr(result, _STEP, number)
                        self.pending += 1
                        if later.steps == SAMPLED:
                            later.first(t - self.took)
                except Exception:
                    hooks.failed()
            return result

        return run_batch

    def _process_batch_result(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later, look, note = self.clock, self.hooks, self.later, self.watch.look, self.note
        waits, device = str(getattr(self.scheduler, "device", "")) != "cpu", self.noter.device is not None

        @functools.wraps(original)
        def process_batch_result(batch: Any, result: Any, *args: Any, **more: Any) -> Any:
            t, wait = clock(), None
            if hooks.on and waits:
                try:
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
                            note((notes.REPEATED, number, t, t1, thread_cpu()))
                        else:
                            note((notes.EMITTED, number, t, t1, thread_cpu(), *notes.noted(told)))
                            self.ended(batch, told.ended)
                        if device:
                            self.noter.ran(number, t)
                        later.steps += 1
                        if later.steps > FEW or t1 - later.since > LONG_NS:
                            later.look(t1)
                except Exception:
                    hooks.failed()
            return returned

        return process_batch_result

    # What happens to requests.

    def handle(self, original: Callable[[], Any], request: Any) -> Any:
        """A request comes in; if it is not in the queue then, a grammar is compiled for it, or it was refused."""
        handle = -1
        try:
            self.queued = False
            if not request.rid.startswith(HEALTH):
                limit = getattr(request.sampling_params, "max_new_tokens", None)
                handle = self.process.arrived(
                    request.rid, len(request.input_ids or ()) or -1, -1 if limit is None else limit, self.clock()
                )
        except Exception:
            self.hooks.failed()
        result = original()
        try:
            if not self.queued and self.handles.get(request.rid, -1) == handle >= 0:  # nor aborted meanwhile
                if self._compiles(request.rid):
                    self.compiling.add(request.rid)
                    self.recorder.hold(handle, _GRAMMAR)
                else:
                    self._gone(request.rid)  # refused: its answer says why
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
                        self.recorder.release(self.handles.get(request.rid, -1), _GRAMMAR)
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
            self.note((notes.RETRACTED, self.handles.get(request.rid, -1), int(lost), self.clock()))
        except Exception:
            self.hooks.failed()
        return result

    def _send_abort_output(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def send_abort_output(abort: Any, request: Any, *args: Any, **more: Any) -> Any:
            result = original(abort, request, *args, **more)
            if self.hooks.on:
                try:
                    self._gone(request.rid)
                except Exception:
                    self.hooks.failed()
            return result

        return send_abort_output

    def _gone(self, rid: str) -> None:
        """A request was given up before its last token."""
        self.compiling.discard(rid)
        handle = self.handles.pop(rid, -1)
        self.note((notes.GONE, handle, self.clock()))
        self.recorder.done(handle)

    def _compiles(self, rid: str) -> bool:
        """Whether a grammar is compiled for a request; taken to be so where the scheduler does not say."""
        queue = getattr(getattr(self.scheduler, "grammar_manager", self.scheduler), "grammar_queue", None)
        return queue is None or any(one.rid == rid for one in queue)

    def ended(self, batch: Any, handles: Sequence[int]) -> None:
        """Requests of a batch are done."""
        if handles:
            for request in [one.rid for one in batch.reqs if self.handles.get(one.rid) in handles]:
                self.recorder.done(self.handles.pop(request, -1))  # of two of one name both may be in it

    # What is done with it, some steps at a time.

    def work(self, entries: list[int]) -> None:
        """Write what the hooks saw. Each such record says in full who is in its first batch."""
        self.watch.requests = ()
        self.noter.write(entries, self._blocked)

    def _blocked(self) -> int:
        """What keeps the first waiting request out."""
        scheduler = self.scheduler
        if not scheduler.waiting_queue:
            return 0
        if len(scheduler.running_batch.reqs) >= scheduler.max_running_requests:
            return BY_SEQS
        return BY_KV if scheduler.chunked_req is None else BY_BUDGET
