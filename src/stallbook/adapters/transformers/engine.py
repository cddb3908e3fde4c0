"""The generation thread: what it schedules, runs and emits, whom it evicts.

A program may make one batching manager after another, each with a thread of its own: one log holds them all. Of two
that run at once the second is not recorded.
"""

from __future__ import annotations

import atexit
import functools
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from stallbook.adapters.device import Track
from stallbook.adapters.later import FEW, LONG_NS, SAMPLED, Later, thread_cpu
from stallbook.adapters.noter import Noter
from stallbook.adapters.process import Process
from stallbook.adapters.stamps import Stamps
from stallbook.adapters.transformers import config, requests, runner
from stallbook.adapters.transformers.batches import Batches
from stallbook.adapters.transformers.frontend import Frontend
from stallbook.notes import transformers as notes
from stallbook.notes.words import WINDOWS
from stallbook.record import WholeRecorder

__all__ = ["Engine"]

_OTHERS: Final = 5
"""Calls of hooks in a step that leave no entry: its batch is laid out, run, sampled; its outputs are sent, and handed
out.
"""
_OFTEN_NS: Final = 1_000_000_000
"""No more often than that an engine at rest notes what of the recorder's cost was the frontend's, on other threads."""


class Engine:
    """The hooks of one process's generation thread. thread: which one that is, 0 while none runs."""

    __slots__ = (
        "ahead", "batch", "batches", "clock", "count", "emission", "ended", "frontend", "graphs", "handles", "hooks",
        "inputs", "later", "news", "noter", "offloader", "offloading", "owed", "process", "processor", "queries",
        "recorder", "runner", "said", "scheduler", "session", "stamps", "tensors", "thread", "track", "updating",
        "windows",
    )  # fmt: skip

    def __init__(self, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.frontend = process.frontend = process.frontend or Frontend(process)
        self.handles, self.news = process.handles, self.frontend.news
        self.session = self.count = self.said = 0
        self.owed: deque[tuple[str, object]] = deque()
        """What hooks of any thread want to be told of themselves."""
        self.hooks.tell = lambda key, value: self.owed.append((key, value))
        self.later: Later | None = None
        self.recorder: WholeRecorder
        self.stamps: Stamps
        self.noter: Noter
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
        """Where batches are laid out: one, or two where the next is made `ahead`, while one runs."""
        self.ahead = False
        self.thread = 0
        self.graphs: runner.Graphs | None = None
        self.batch: list[Any] = []
        """The one that was laid out last, from when on its `tensors` were made, and of how many `queries`, padded."""
        self.tensors = self.queries = 0
        self.emission: tuple[int, int, Collection[int]] | None = None
        """When, of which step, and who is out of it by now."""
        self.ended: list[str] = []
        self.batches: Batches | None = None
        self.updating = self.offloading = False
        self.windows: list[int] = []
        """Name, start and end of what has a name of its own in the step that is scheduled now."""
        self.track: Track | None = None
        self.frontend.routed.begins(None, None)

    # The loop begins and ends.

    def ends(self) -> None:
        """The thread is about to end: write what waits."""
        try:
            if self.later is not None and self.processor is not None:
                self.cut_off(list(self.handles), self.clock())
                self.later.flush()
                self._rest()
        except Exception:
            self.hooks.failed()
        runner.undo(self)
        self._forget()

    def rest(self) -> None:
        """The process ends: write what was handed out after the thread did."""
        if not self.thread and self.process.recorder is not None:
            self._rest()

    def _rest(self) -> None:
        """Write what was handed out and what went wrong on other threads."""
        try:
            while self.owed:
                self.process.fact(*self.owed.popleft())
            if self.later is not None and self.recorder.on:
                self.later.entries += self.frontend.noted(last=True)
                self.later.flush()
        except Exception:
            self.hooks.failed()

    def adopts(self, manager: Any, processor: Any) -> None:
        """Hook the classes of its parts, unless an earlier one was of the same, and record from here on."""
        config.begin(self.process, manager, processor)
        recorder = self.process.recorder
        if recorder is None or not recorder.on:
            self.hooks.on = False
            return
        self.recorder = recorder
        if self.later is not None:
            self.noter.renew()
        else:
            self.stamps = Stamps(self.clock)
            self.noter = Noter(recorder, self.stamps, self.hooks, self.clock)
            self.noter.told_by("transformers", notes.NAMES)
            self.later = Later(self.work, recorder, self.hooks, self.clock, _OTHERS)
            atexit.register(self.rest)  # runs before the recorder's own, which was registered first
        self.later.entries += self.frontend.noted()  # what was handed out since the last manager's end
        self.later.entries += (notes.RENEWED, processor.max_batch_tokens)
        self.frontend.cut_off.update(self.frontend.finished)
        self.handles.clear()
        self.session += 1
        self.scheduler, self.offloader = processor.scheduler, processor.offloading_manager
        self.batches = Batches(self.handle_of)
        runner.watch(self, processor)
        requests.watch(self, processor)
        self.frontend.routed.begins(self, getattr(processor, "output_router", None))
        wrap, kind = self.hooks.wrap, type(processor)
        wrap(kind, "prepare_next_batch", self._prepare_next_batch)
        wrap(kind, "update_batch", self._update_batch)
        self.process.told_hooks()
        self.processor = processor
        self.later.flush()  # what is told of the steps to come is not to stand before that

    # Requests come and go.

    def arrived(self, state: Any) -> int:
        """A request came in. Returns its handle."""
        if state.request_id in self.handles:
            self.replaced(state.request_id)
        if state.request_id in self.frontend.finished and self.later is not None:
            self.later.entries += self.frontend.noted(last=True)  # what was handed out is of the one before it
        handle = self.frontend.arrived(*requests.told(state), self.session)
        requests.has_callback(self, state)
        return handle

    def handle_of(self, state: Any) -> int:
        """A request's handle: another answer to a prompt had no arrival."""
        handle = self.handles.get(state.request_id)
        return self.arrived(state) if handle is None else handle

    def finished(self, ended: Sequence[str], t: int) -> None:
        """Requests are done, or were given up."""
        handles = self.frontend.gone(ended)
        for handle in handles:
            self.recorder.done(handle)
        if self.later is not None:
            self.later.entries += (notes.FINISHED, t, len(handles), *handles)

    def cut_off(self, requests: Sequence[str], t: int) -> None:
        """Requests are over before their last token."""
        self.finished(requests, t)
        self.frontend.cut_off.update(self.frontend.finished.keys() & requests)

    def replaced(self, request: str) -> None:
        """Another one of its name came in before it was seen to be gone: nobody asks for the old one any more."""
        self.cut_off([request], self.clock())
        while (request, True) in self.news:
            self.news.remove((request, True))

    # What runs in each step: as little as can be.

    def _prepare_next_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later = self.clock, self.hooks, self.later
        assert later is not None
        note, news, owed = later.entries.extend, self.news, self.owed

        @functools.wraps(original)
        def prepare_next_batch(processor: Any, *args: Any, **more: Any) -> Any:
            t0 = clock()
            found = original(processor, *args, **more)
            t1 = clock()
            if hooks.on and processor is self.processor and (batches := self.batches) is not None:
                try:
                    if news:
                        requests.heard(self, t1)
                    if found:
                        step = self.count = self.count + 1
                        if (plan := batches.takes_off(self.batch, self.queries, step)) is not None:
                            note((notes.PLAN, *plan.noted()))
                        note((notes.SCHEDULED, step, t0, self.tensors))
                        if self.windows or self.track is not None:
                            self.keeps(step)
                        if later.steps == SAMPLED:
                            later.first(t1)
                    else:
                        self.rests()
                except Exception:
                    hooks.failed()
            elif owed and processor is self.processor:  # the hooks are off: why, and what they saw before
                self._rest()
            return found

        return prepare_next_batch

    def keeps(self, step: int) -> None:
        """What else is known of a step that was scheduled."""
        if self.windows and self.later is not None:
            self.later.entries += (WINDOWS, step, 0, len(self.windows) // 3, *self.windows)
            self.windows = []
        if self.track is not None:
            self.noter.tracks[step] = self.track

    def rests(self) -> None:
        """There is nothing to run."""
        self.windows = []
        if self.later is not None and (self.later.entries or self.frontend.waits):
            self.later.flush()
            self.noter.tracks.clear()
            if self.later.since - self.said > _OFTEN_NS:
                self.said = self.later.since
                self.process.fact("frontend_ns", self.frontend.spent)

    def came_back(self, inputs: Any) -> None:
        """The tokens of the batch that was laid out there are here. While it ran, some of its requests finished or lost
        their cache, if the next one is made ahead.
        """
        try:
            if self.batches is not None:
                self.emission = (self.clock(), *self.batches.lands(inputs.requests_in_batch, self.ahead))
        except Exception:
            self.hooks.failed()

    def _update_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks, later = self.clock, self.hooks, self.later
        assert later is not None

        @functools.wraps(original)
        def update_batch(processor: Any, *args: Any, **more: Any) -> Any:
            if not hooks.on or processor is not self.processor:
                return original(processor, *args, **more)
            self.updating = True
            if not self.ahead:
                self.came_back(self.inputs[0])
            try:
                return original(processor, *args, **more)
            finally:  # also where it raises: the tokens were there
                self.updating = False
                try:
                    t1 = clock()
                    self.emitted(t1)
                    if later.steps > FEW or t1 - later.since > LONG_NS:
                        later.look(t1)
                except Exception:
                    hooks.failed()

        return update_batch

    def emitted(self, t1: int) -> None:
        """A batch that came back was worked off until `t1`."""
        emission, later = self.emission, self.later
        if emission is not None and later is not None:
            self.emission = None
            t, step, without = emission
            if step:
                later.entries += (notes.EMITTED, step, t, t1, thread_cpu(), len(without), *without)
                if self.noter.tracks:
                    self.noter.ran(step, t)
                later.steps += 1
            if self.ended:
                self.finished(self.ended, t1)
                self.ended = []

    # Some steps at a time.

    def work(self, entries: list[int]) -> None:
        """Write what the hooks saw. Each such record says in full who is in its first batch."""
        if self.batches is not None:
            self.batches.tell_anew()
        self.recorder.spent(self.frontend.cost())
        self.noter.write([*entries, *self.frontend.noted()], functools.partial(requests.blocked, self.scheduler))
