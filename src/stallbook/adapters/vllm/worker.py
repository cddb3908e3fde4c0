"""A worker in a process of its own: when it ran the forward pass of which step, and what else it did for it."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.device import DeviceLane, Track
from stallbook.adapters.process import Process
from stallbook.adapters.stamps import Stamps
from stallbook.adapters.steps import NO_GRAPH, SAMPLED, thread_away
from stallbook.adapters.vllm import scopes
from stallbook.adapters.vllm.engine import STEP
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


@dataclass(frozen=True, slots=True)
class _Done:
    """A step whose calls are done."""

    step: int
    t0: int
    t1: int
    names: list[int]
    times: list[int]
    graph: tuple[int, int]
    cpu: int
    delay: int
    track: Track | None


class Worker:
    """The hooks of one worker. It opens its spool at the first step that an engine sends."""

    def __init__(self, wrapper: Any, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.rank = int(getattr(wrapper, "global_rank", getattr(wrapper, "rpc_rank", 0)))
        self.index = int(getattr(wrapper.vllm_config.parallel_config, "data_parallel_index", 0) or 0)
        self.speaks = _speaks(wrapper)
        self.stamps = Stamps(self.clock)
        self.away = thread_away()
        self.step = 0
        self.names: list[int] = []
        self.times: list[int] = []
        self.graph = NO_GRAPH
        self.lane: DeviceLane | None = None
        self.track: Track | None = None
        self.done: deque[_Done] = deque()
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

    def _begin(self) -> None:
        """The first step: this process is a worker."""
        self.process.become_worker(self.rank, self.index)
        recorder = self.process.recorder
        if recorder is None or not recorder.on:
            self.hooks.on = False
            return
        self.recorder = recorder
        self.runner = recorder.name("runner")
        self.lane = scopes.take_over(self.hooks, self.stamps, recorder, "runner", lambda: self.track)
        scopes.watch_graphs(self.hooks, self.wrapper, self._dispatched)
        self.process.told_hooks()

    def _dispatched(self, code: int, padded: int) -> None:
        self.graph = code, padded

    def _execute_model(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        def execute_model(scheduler_output: Any, *args: Any, **more: Any) -> Any:
            t0 = clock()
            if hooks.on:
                try:
                    self.starts(scheduler_output, t0)
                except Exception:
                    hooks.failed()
            result = original(scheduler_output, *args, **more)
            if hooks.on:
                try:
                    self.ends(clock(), result is not None or not self.samples)
                except Exception:
                    hooks.failed()
            return result

        return execute_model

    def _sample_tokens(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        def sample_tokens(*args: Any, **more: Any) -> Any:
            t0 = clock()
            result = original(*args, **more)
            if hooks.on:
                try:
                    if self.step:
                        self._stretch(t0, clock())
                        self.commit()
                except Exception:
                    hooks.failed()
            return result

        return sample_tokens

    def starts(self, output: Any, t0: int) -> None:
        """The forward pass of a step begins."""
        self.step = getattr(output, STEP, 0)
        if not self.step:
            return
        if not self.process.role:
            self._begin()
        self.stamps.clear()
        self.names.clear()
        self.times.clear()
        self.t0, self.graph = t0, NO_GRAPH
        self.track = Track() if self.lane is not None else None
        self.away(t0)

    def ends(self, t1: int, last: bool) -> None:
        """`execute_model` is done; if it is the `last` call of this step, so is the step."""
        if self.step:
            self._stretch(self.t0, t1)
            if last:
                self.commit()

    def _stretch(self, t0: int, t1: int) -> None:
        """One call, from t0 to t1: what the scopes stamped in it, and the runner's own work around."""
        self.names.append(self.runner)
        self.times.append(t0)
        for when, name in self.stamps.take():
            self.names.append(name)
            self.times.append(when)
        self.names.append(NO_NAME)
        self.times.append(t1)

    def commit(self) -> None:
        """The step's calls are done. Its device may not be: then it is written once the device is."""
        t1 = self.times[-1]
        cpu, delay = self.away(t1)
        if self.speaks:
            self.done.append(_Done(self.step, self.t0, t1, self.names, self.times, self.graph, cpu, delay, self.track))
            while self.done and self._write(self.done[0], t1, len(self.done) > _IN_FLIGHT):
                self.done.popleft()
            self.names, self.times = [], []
        if self.step % SAMPLED == 0:
            self.recorder.spent(self.clock() - t1, SAMPLED)
        self.step = 0

    def _write(self, done: _Done, now: int, late: bool) -> bool:
        """Write a step whose device is done; or one that has waited for long, without what the device did."""
        tail = b""
        if self.lane is not None and done.track is not None:
            found = self.lane.windows(done.track, now)
            if found is None and not late:
                return False
            if found:
                tail = self.recorder.tail(windows=[self.recorder.device_window(*one) for one in found])
        graph, padded = done.graph
        self.recorder.step(
            done.step, done.t0, done.t1, done.t1, done.names[:-1], done.times[:-1], (done.cpu, done.delay), -1, 0,
            False, graph, padded, -1, tail,
        )  # fmt: skip
        return True
