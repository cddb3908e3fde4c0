"""What the adapter touches of transformers' continuous batching, and no more, on a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fakes import START, Clock, Stream

from stallbook.adapters.hooks import Hooks
from stallbook.adapters.process import Process
from stallbook.adapters.transformers import manager as adapter
from stallbook.adapters.transformers.engine import Engine

PENDING, PREFILLING, DECODING, FINISHED = range(4)


def request(name: str, prompt: int = 8, limit: int = 20, made_ms: float = 0, streaming: bool = True) -> Any:
    """A `RequestState`."""
    return SimpleNamespace(
        request_id=name, initial_tokens=[7] * prompt, max_new_tokens=limit, status=PENDING, position_offset=0,
        created_time=(START + made_ms * 1e6) / 1e9, is_cpu_offloaded=False, streaming=streaming,
    )  # fmt: skip


def future(state: Any, tokens: int = 1, new: bool = True) -> Any:
    """A `FutureRequestState`: in the next batch with so many tokens, after which it has a `new` one."""
    return SimpleNamespace(state=state, query_length=tokens, has_new_token=new)


def output(name: str, tokens: int, finished: bool = False) -> Any:
    """A `GenerationOutput`: all tokens so far."""
    return SimpleNamespace(request_id=name, generated_tokens=[7] * tokens, is_finished=lambda: finished)


class Scheduler:
    max_requests_per_batch = 4

    def __init__(self) -> None:
        self.active_requests: dict[str, Any] = {}
        self.waiting_requests: dict[str, Any] = {}
        self.starved_requests: list[tuple[Any, int]] = []
        self.cancelled: list[str] = []

    def add_waiting_request(self, state: Any) -> None:
        self.waiting_requests[state.request_id] = state

    def finish_request(self, request_id: str) -> None:
        self.active_requests.pop(request_id, None)

    def set_request_cancellation(self, request_id: str) -> None:
        self.cancelled.append(request_id)

    def clear_cancelled_requests(self) -> None:
        for one in self.cancelled:
            self.active_requests.pop(one, None)
            self.waiting_requests.pop(one, None)
        self.cancelled = []


class Offloading:
    """An `OffloadingManager` that evicts all who starve; `pool` says whether it has room to keep their caches."""

    def __init__(self, clock: Clock, scheduler: Scheduler, pool: bool) -> None:
        self.clock, self.scheduler, self._cpu_pool = clock, scheduler, object() if pool else None

    def offload_requests(self) -> bool:
        starved, self.scheduler.starved_requests = self.scheduler.starved_requests, []
        kept = self._offload_to_cpu([one for one, _ in starved])
        for one, _ in starved:
            one.status, one.is_cpu_offloaded = PENDING, one.request_id in kept
            self.scheduler.finish_request(one.request_id)
            self.scheduler.add_waiting_request(one)
        return True

    def _offload_to_cpu(self, victims: Sequence[Any]) -> set[str]:
        if self._cpu_pool is None:
            return set()
        self.clock.go(2)
        return {one.request_id for one in victims}

    def restore_scheduled_requests(self, batch: Sequence[Any]) -> None:
        if any(one.state.is_cpu_offloaded for one in batch):
            self.clock.go(3)


class IOs:
    """Where a batch is laid out. `device`: asynchronous, and done when its stream is."""

    def __init__(self, clock: Clock, device: Stream | None = None) -> None:
        self.clock, self.device = clock, device
        self.requests_in_batch: list[Any] = []
        self.graph: object | None = None
        self.done = 0

    def prepare_batch_tensors(self, batch: Sequence[Any], num_q_tokens: int = 0) -> None:
        self.requests_in_batch = list(batch)
        self.clock.go(1)

    def prepare_batch_update(self) -> list[Any]:
        return self.requests_in_batch

    def get_graph(self) -> object | None:
        return self.graph


class AsyncIOs:
    """Two of them: while one runs the other is laid out."""

    def __init__(self, clock: Clock, stream: Stream) -> None:
        self.clock, self.stream, self.current = clock, stream, 0
        self.io_pairs = [SimpleNamespace(host_io=IOs(clock, stream)) for _ in range(2)]

    def prepare_batch_tensors(self, batch: Sequence[Any], num_q_tokens: int = 0) -> None:
        self.io_pairs[self.current].host_io.prepare_batch_tensors(batch, num_q_tokens=num_q_tokens)

    def prepare_batch_update(self) -> list[Any]:
        host = self.io_pairs[self.current].host_io
        self.clock.now = max(self.clock.now, host.done)
        return host.prepare_batch_update()  # type: ignore[no-any-return]

    def get_graph(self) -> object | None:
        return self.io_pairs[self.current].host_io.graph  # type: ignore[no-any-return]


class Runner:
    """A `ModelRunner`: 5 ms of forward pass and 1 of sampling, here or on a device."""

    def __init__(self, clock: Clock, ios: Any, graphs: bool = False) -> None:
        self.clock, self.ios = clock, ios
        self.use_cuda_graph_varlen = self.use_cuda_graph_decode = self.pad_inputs = graphs

    def maybe_pad_inputs(self, tokens: int) -> tuple[int, int]:
        return (1 << (tokens - 1).bit_length() if self.pad_inputs else tokens), 0

    def compute_batch(self, ms: float = 5) -> None:
        graph = self.ios.get_graph() if self.pad_inputs else None
        stream = getattr(self.ios, "stream", None)
        if stream is None:
            self.clock.go(ms)
        else:
            stream.work(ms)
            self.clock.go(1)
        if graph is None:
            self._sample()

    def _sample(self) -> None:
        if (stream := getattr(self.ios, "stream", None)) is None:
            self.clock.go(1)
        else:
            stream.work(1)


class EventLoop:
    """Runs what it was sent when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        self.sent.append((callback, args))

    def run(self) -> None:
        sent, self.sent = self.sent, []
        for callback, args in sent:
            with suppress(ZeroDivisionError):  # a callback's; a real loop logs it
                callback(*args)


class OutputRouter:
    """Sends a batch's outputs to those who registered for them, and puts the others into `queue`."""

    def __init__(self) -> None:
        self.result_handlers: dict[str, tuple[Callable[[Any], object], Any]] = {}
        self.queue: list[Any] = []

    def deliver(self, output: Any) -> None:
        callback, loop = self.result_handlers[output.request_id]
        loop.call_soon_threadsafe(callback, output)

    def deliver_batch(self, outputs: Sequence[Any]) -> None:
        found = [(self.result_handlers.get(one.request_id), one) for one in outputs]
        self.queue += [one for entry, one in found if entry is None]
        callbacks = [(entry[0], one) for entry, one in found if entry is not None]

        def run() -> None:
            for callback, one in callbacks:
                callback(one)

        if callbacks:
            next(entry[1] for entry, _ in reversed(found) if entry is not None).call_soon_threadsafe(run)


class Status:
    """A `BackgroundThreadStatus`: the program pauses the engine for so many ms."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.pause_ms = clock, 0.0

    def pause_and_wait(self) -> None:
        self.clock.go(self.pause_ms)
        self.pause_ms = 0.0


class Processor:
    """A `ContinuousBatchProcessor` that does what it is told."""

    max_batch_tokens, model_device, padding = 64, "cpu", 0

    def __init__(self, clock: Clock, ios: Any, *, pool: bool = False, graphs: bool = False) -> None:
        self.clock, self.inputs_and_outputs = clock, ios
        self.scheduler, self.output_router = Scheduler(), OutputRouter()
        self.offloading_manager = Offloading(clock, self.scheduler, pool)
        self.model_runner = Runner(clock, ios, graphs)
        self.background_thread_status = Status(clock)

    def prepare_next_batch(self, batch: Sequence[Any], meanwhile: Callable[[], object] = lambda: None) -> bool:
        if self.background_thread_status.pause_ms:
            self.background_thread_status.pause_and_wait()
        self.scheduler.clear_cancelled_requests()
        if not batch:
            return False
        meanwhile()
        self.clock.go(1)
        self.offloading_manager.restore_scheduled_requests(batch)
        for one in batch:
            name = one.state.request_id
            self.scheduler.active_requests[name] = one.state
            self.scheduler.waiting_requests.pop(name, None)
            one.state.status, one.state.is_cpu_offloaded = DECODING, False
        queries = sum(one.query_length for one in batch)
        self.model_runner.maybe_pad_inputs(queries)
        self.inputs_and_outputs.prepare_batch_tensors(batch, num_q_tokens=queries + self.padding)
        return True

    def update_batch(self, finished: Sequence[Any] = (), outputs: Sequence[Any] = ()) -> None:
        batch = self.inputs_and_outputs.prepare_batch_update()
        self.clock.go(1)
        for one in batch:
            one.state.position_offset += one.query_length
        for state in finished:
            state.status = FINISHED
            self.scheduler.finish_request(state.request_id)
        if outputs:
            self.output_router.deliver_batch(outputs)


class Manager:
    """A `ContinuousBatchingManager` whose loop is a function of the test's."""

    continuous_batching_config = SimpleNamespace(page_size=16, num_blocks=64, use_cuda_graph=(False, False))

    def __init__(self, made: Processor, loop: Callable[[Processor], object]) -> None:
        self.made, self.loop = made, loop
        self.output_router, self.event_loop = made.output_router, EventLoop()

    def _create_batch_processor(self) -> Processor:
        return self.made

    def _run_generation_loop(self, use_inference_mode: bool = False) -> object:
        return self.loop(self._create_batch_processor())

    def register_result_handler(self, request_id: str, callback: Callable[[Any], object]) -> None:
        self.output_router.result_handlers[request_id] = callback, self.event_loop

    def get_result(self, result: Any = None) -> Any:
        return result


HOOKED = (Scheduler, OutputRouter, Offloading, IOs, AsyncIOs, Runner, Status, Processor)
"""Classes that the adapter hooks once it meets an object of theirs."""


@pytest.fixture
def unhooked() -> Iterator[None]:
    """They are afterwards as they were before."""
    before = [(kind, dict(vars(kind))) for kind in HOOKED]
    yield
    for kind, held in before:
        for name, value in held.items():
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)


def attached(folder: Path, clock: Clock) -> tuple[Engine, type[Manager]]:
    """The adapter, and a class of managers that it has hooked."""
    module: Any = ModuleType("continuous_api")
    module.ContinuousBatchingManager = type("ContinuousBatchingManager", (Manager,), {})
    module.OutputRouter = OutputRouter
    process = Process(folder, "transformers 0.0", Hooks(), clock)
    return adapter.install(module, process), module.ContinuousBatchingManager
