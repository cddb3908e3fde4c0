"""A worker in a process of its own: when it ran the forward pass of which step, and what else it did for it."""

from __future__ import annotations

import atexit
import functools
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.device import DeviceLane, Track
from stallbook.adapters.later import FEW, LONG_NS, Later, Waits, thread_cpu
from stallbook.adapters.process import Process
from stallbook.adapters.stamps import Stamps
from stallbook.adapters.vllm import scopes
from stallbook.adapters.vllm.engine import STEP
from stallbook.notes import delays
from stallbook.notes.steps import NO_GRAPH
from stallbook.record.spool import NO_NAME

__all__ = ["Worker", "install"]

_IN_FLIGHT: Final = 4
"""So many steps may wait for their device."""


def install(module: ModuleType, process: Process) -> None:
    """Wrap the set-up of a worker's device: after it, the model runner stands."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init_device(self: Any, *args: Any, **more: Any) -> Any:
            result = original(self, *args, **more)
            try:
                if process.hooks.on and not process.role:
                    Worker(self, process)
            except Exception:
                process.hooks.failed()
            return result

        return init_device

    wrapper = getattr(module, "WorkerWrapperBase", None)
    if wrapper is not None:
        process.hooks.wrap(wrapper, "init_device", make)


def _speaks(wrapper: Any) -> bool:
    """Whether this worker's answer is the one that the engine waits for: the first of the last stage."""
    config = wrapper.vllm_config.parallel_config
    width = config.tensor_parallel_size * getattr(config, "prefill_context_parallel_size", 1)
    return bool(wrapper.global_rank == config.world_size - width)


class _Step:
    """A step as the worker saw it: its calls, and what of the thread's time they took."""

    __slots__ = ("calls", "delay", "graph", "length", "step", "track", "used")

    def __init__(self, step: int, track: Track | None) -> None:
        self.step, self.track = step, track
        self.calls: list[tuple[int, int]] = []
        self.graph = NO_GRAPH
        self.length = self.used = 0
        self.delay: int | None = None


class Worker:
    """The hooks of one worker. It opens its spool at the first step that an engine sends."""

    def __init__(self, wrapper: Any, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.rank = int(getattr(wrapper, "global_rank", getattr(wrapper, "rpc_rank", 0)))
        self.index = int(getattr(wrapper.vllm_config.parallel_config, "data_parallel_index", 0) or 0)
        self.speaks = _speaks(wrapper)
        self.stamps = Stamps(self.clock)
        self.marks: list[tuple[int, int]] = []
        self.graphs: deque[tuple[int, int, int]] = deque(maxlen=256)
        self.lane: DeviceLane | None = None
        self.track: Track | None = None
        self.later: Later | None = None
        self.waits = Waits()
        self.steps: deque[_Step] = deque()
        self.wrapper = wrapper
        worker = wrapper.worker
        self.samples = callable(getattr(worker, "sample_tokens", None))
        self.hooks.wrap(worker, "execute_model", self._execute_model, "worker.execute_model")
        if self.samples:
            self.hooks.wrap(worker, "sample_tokens", self._sample_tokens, "worker.sample_tokens")

        def undo() -> None:
            for name in ("execute_model", "sample_tokens"):
                vars(worker).pop(name, None)
                self.hooks.found.pop(f"worker.{name}", None)

        process.undo.append(undo)

    def _begin(self) -> Later | None:
        """The first step: this process is a worker."""
        self.process.become_worker(self.rank, self.index)
        recorder = self.process.recorder
        if recorder is None or not recorder.on:
            self.hooks.on = False
            return None
        self.recorder = recorder
        self.runner = recorder.name("runner")
        if self.speaks:
            self.lane = scopes.take_over(self.hooks, self.stamps, recorder, "runner", lambda: self.track)
            scopes.watch_graphs(self.hooks, self.wrapper, self._dispatched)
        self.process.told_hooks()
        self.later = Later(self.work, recorder, self.hooks, self.clock)
        atexit.register(self.later.flush)
        return self.later

    def _dispatched(self, code: int, padded: int) -> None:
        self.graphs.append((self.clock(), code, padded))

    # What runs in each step.

    def _execute_model(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        def execute_model(scheduler_output: Any, *args: Any, **more: Any) -> Any:
            t0, step, cpu = clock(), 0, 0
            if hooks.on:
                try:
                    step, cpu = self.starts(scheduler_output), thread_cpu()
                except Exception:
                    hooks.failed()
            result = original(scheduler_output, *args, **more)
            if step and hooks.on and self.later is not None:
                try:
                    last, t1 = result is not None or not self.samples, clock()
                    self.later.entries.append((step, t0, t1, cpu, thread_cpu() if last else 0, self.track))
                    if last:
                        self._ends(self.later, t1)
                except Exception:
                    hooks.failed()
            return result

        return execute_model

    def starts(self, output: Any) -> int:
        """A step begins: its number; 0 if there is nothing to run."""
        step: int = getattr(output, STEP, 0)
        if not step:
            return 0
        later = self.later or self._begin()
        if later is None:
            return 0
        if not output.total_num_scheduled_tokens:
            later.flush()  # the engine rests
            return 0
        if self.lane is not None:
            self.track = Track()
        return step

    def _sample_tokens(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        def sample_tokens(*args: Any, **more: Any) -> Any:
            t0, later = clock(), self.later
            result = original(*args, **more)
            if hooks.on and later is not None:
                try:
                    t1 = clock()
                    later.entries.append((0, t0, t1, 0, thread_cpu(), None))
                    self._ends(later, t1)
                except Exception:
                    hooks.failed()
            return result

        return sample_tokens

    @staticmethod
    def _ends(later: Later, t1: int) -> None:
        """The last call of a step has come back."""
        later.steps += 1
        if later.steps > FEW or t1 - later.since > LONG_NS:
            later.look(t1)

    # What is done with it, some steps at a time.

    def work(self, entries: list[Any]) -> None:
        """Write what the hooks saw."""
        self.marks += self.stamps.take()
        now: _Step | None = None
        begun = 0
        for number, t0, t1, cpu0, cpu1, track in entries:
            if number:
                now, begun = _Step(number, track), cpu0
            if now is None:
                continue
            now.calls.append((t0, t1))
            if cpu1:
                now.length, now.used = t1 - now.calls[0][0], cpu1 - begun
                self.steps.append(now)
                now = None
        if not self.speaks:
            self.steps.clear()
            self.recorder.flush()
            return
        while self.graphs:
            t, code, padded = self.graphs.popleft()
            for step in self.steps:
                if step.calls[0][0] <= t < step.calls[-1][1]:
                    step.graph = code, padded
        self._write(self.clock())

    def _write(self, now: int) -> None:
        """Write the steps whose device is done; those that have waited for long without what the device did."""
        new = [step for step in self.steps if step.delay is None]
        waited = delays.shared([(step.length, step.used) for step in new], self.waits(now))
        for step, delay in zip(new, waited, strict=True):
            step.delay = delay  # also of one that waits for its device: what the kernel counted is told once
        while self.steps:
            step, tail = self.steps[0], b""
            if self.lane is not None and step.track is not None:
                found = self.lane.windows(step.track, now)
                if found is None and len(self.steps) <= _IN_FLIGHT:
                    return
                tail = self.recorder.tail(windows=[self.recorder.device_window(*one) for one in found or ()])
            self.steps.popleft()
            names, times = self._segments(step)
            t0, t1 = step.calls[0][0], step.calls[-1][1]
            self.recorder.step(
                step.step, t0, t1, t1, names, times, (step.used, step.delay or 0), -1, 0, False, *step.graph, -1, tail
            )  # fmt: skip

    def _segments(self, step: _Step) -> tuple[list[int], list[int]]:
        """What the scopes stamped in the step's calls, and the runner's own work around."""
        names: list[int] = []
        times: list[int] = []
        marks = self.marks
        for t0, t1 in step.calls:
            at = 0
            while at < len(marks) and marks[at][0] < t1:
                at += 1
            inside = [mark for mark in marks[:at] if mark[0] >= t0]
            del marks[:at]
            names += (self.runner, *[name for _, name in inside], NO_NAME)
            times += (t0, *[t for t, _ in inside], t1)
        return names[:-1], times[:-1]
