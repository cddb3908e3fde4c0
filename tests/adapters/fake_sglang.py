"""What the adapter touches of SGLang, and no more, on a clock that a test moves; with SGLang's two loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from fakes import Clock, Stream

from stallbook.adapters.hooks import Hooks
from stallbook.adapters.process import Process
from stallbook.adapters.sglang import scheduler
from stallbook.adapters.sglang.engine import Engine

Meanwhile = Callable[[], None]


def nothing() -> None:
    """For what happens meanwhile, if nothing does."""


class Req:
    """A request in a scheduler."""

    def __init__(self, rid: str, prompt: int = 8, limit: int = 20) -> None:
        self.rid = rid
        self.origin_input_ids, self.output_ids = [1] * prompt, list[int]()
        self.input_ids = self.origin_input_ids  # of a tokenized request, before it is one of these
        self.sampling_params = SimpleNamespace(max_new_tokens=limit)
        self.finished_reason: str | None = None
        self.finished_len: int | None = None
        self.is_retracted = False
        self.kv = SimpleNamespace(kv_committed_len=0)

    def reset_for_retract(self) -> None:
        self.is_retracted, self.kv.kv_committed_len = True, 0


class Mode:
    """A `ForwardMode`."""

    def __init__(self, extend: bool) -> None:
        self.extend = extend

    def is_extend(self) -> bool:
        return self.extend

    def is_decode(self) -> bool:
        return not self.extend


class Batch:
    """A `ScheduleBatch`: of one that decodes there is one, and its requests change."""

    def __init__(self, reqs: Sequence[Req], chunks: Sequence[int] | None = None, decoding: Sequence[Req] = ()) -> None:
        self.reqs = list(reqs)
        self.forward_mode = Mode(chunks is not None)
        self.extend_lens = list(chunks or ())
        self.decoding_reqs = list(decoding) or None

    def copy(self) -> Batch:
        return Batch(self.reqs, self.extend_lens if self.forward_mode.extend else None, self.decoding_reqs or ())


class Runner:
    """A `ModelRunner`; on a device it launches and does not wait."""

    def __init__(self, clock: Clock, stream: Stream | None = None) -> None:
        self.clock, self.stream = clock, stream
        self.decode_cuda_graph_runner: Any = None

    def forward(self, batch: Batch, ms: float) -> None:
        self._work(ms)

    def sample(self, batch: Batch) -> None:
        self._work(1)

    def _work(self, ms: float) -> None:
        if self.stream is not None:
            self.stream.work(ms)
            ms = 1
        self.clock.go(ms)


class Scheduler:
    """Does what it is told, and takes as long as it is told."""

    is_generation, max_running_requests, chunked_prefill_size, dp_rank, tp_rank = True, 4, 64, None, 0
    chunked_req = None

    def __init__(self, clock: Clock, overlap: bool = False, stream: Stream | None = None) -> None:
        self.clock, self.enable_overlap, self.stream = clock, overlap, stream
        self.tp_worker = SimpleNamespace(model_runner=Runner(clock, stream))
        self.waiting_queue: list[Req] = []
        self.running_batch = Batch([])
        self.results: deque[tuple[Batch, Any]] = deque()
        self.planned: Batch | None = None
        self.meanwhile: Meanwhile = nothing
        self.at: Callable[[str], object] = str
        """Told where it is: before and after its forward pass, before and after it waits for a result."""
        self.calls: list[str] = []
        self.server_args = SimpleNamespace(stream_interval=1, chunked_prefill_size=64)

    def handle_generate_request(self, request: Any) -> None:
        self._add_request_to_queue(request)

    def _add_request_to_queue(self, request: Req, is_retracted: bool = False) -> None:
        self.calls.append("_add_request_to_queue")

    def get_next_batch_to_run(self, **_: Any) -> Any:
        self.calls.append("get_next_batch_to_run")
        self.meanwhile()
        if self.planned is not None:
            self.clock.go(1)
        return SimpleNamespace(batch_to_run=self.planned)

    def run_batch(self, batch: Batch, ms: float = 5) -> Any:
        self.calls.append("run_batch")
        self.clock.go(1)
        self.at("before the forward pass")
        self.tp_worker.model_runner.forward(batch, ms)
        self.tp_worker.model_runner.sample(batch)
        self.at("after the forward pass")
        self.clock.go(1)
        done = None
        if self.stream is not None:
            done = self.stream.event(enable_timing=True)
            done.record()
        return SimpleNamespace(copy_done=done, can_run_cuda_graph=False, speculative_num_draft_tokens=None)

    def process_batch_result(self, batch: Batch, result: Any) -> str:
        self.calls.append("process_batch_result")
        self.at("before the result")
        if result.copy_done is not None:
            result.copy_done.synchronize()
        self.at("after the result")
        for i, one in enumerate(batch.reqs):
            chunked = batch.forward_mode.extend and one is self.chunked_req
            if one.finished_reason or one.is_retracted or chunked:
                continue
            one.output_ids.append(7)
            one.kv.kv_committed_len = len(one.origin_input_ids) + len(one.output_ids) - 1
            if len(one.output_ids) >= one.sampling_params.max_new_tokens:
                one.finished_reason = "length"
            assert i < len(batch.reqs)
        self.clock.go(1)
        return "processed"

    def send_abort_output(self, abort: Any, request: Req) -> None:
        self.calls.append("send_abort_output")

    # What its loops do in one pass.

    def normal(self, batch: Batch | None, ms: float = 5, meanwhile: Meanwhile = nothing) -> None:
        self._plan(batch, meanwhile)
        if batch is not None:
            self.process_batch_result(batch, self.run_batch(batch, ms))

    def overlap(
        self, batch: Batch | None, ms: float = 5, meanwhile: Meanwhile = nothing, at_once: bool = False
    ) -> None:
        """`at_once`: the result of the pass before is not to wait for this one."""
        waiting = len(self.results)
        self._plan(batch, meanwhile)
        if at_once and waiting:
            self.process_batch_result(*self.results.popleft())
            waiting = 0
        if batch is not None:
            self.results.append((batch.copy(), self.run_batch(batch, ms)))
        if waiting:
            self.process_batch_result(*self.results.popleft())

    def _plan(self, batch: Batch | None, meanwhile: Meanwhile) -> None:
        self.planned, self.meanwhile = batch, meanwhile
        plan = self.get_next_batch_to_run()
        assert plan.batch_to_run is batch


class Hooked:
    """A scheduler that is hooked as a real one is, and the process that records it."""

    def __init__(
        self, folder: Path, clock: Clock, overlap: bool = False, stream: Stream | None = None, **more: Any
    ) -> None:  # fmt: skip
        """more: attributes of the scheduler."""
        self.folder, self.clock = folder, clock
        self.process = process(folder, clock)
        self.module = module(**more)
        scheduler.install(self.module, self.process)
        self.scheduler: Scheduler = self.module.Scheduler(clock, overlap, stream)

    @property
    def engine(self) -> Engine:
        """The adapter's side."""
        hook = vars(self.scheduler)["run_batch"]
        found: Engine = next(c.cell_contents for c in hook.__closure__ if isinstance(c.cell_contents, Engine))
        return found

    def arrive(self, *requests: Req) -> list[Req]:
        """Requests come in."""
        for one in requests:
            self.scheduler.handle_generate_request(one)
        return list(requests)

    def req(self, rid: str, prompt: int = 8, limit: int = 20) -> Req:
        """A request that comes in now."""
        made: Req = self.module.Req(rid, prompt, limit)
        return self.arrive(made)[0]

    def close(self) -> None:
        """The end of the recording, which nothing went wrong in."""
        self.engine.later.flush()
        recorder = self.process.recorder
        assert recorder is not None
        assert (self.process.hooks.errors, self.process.hooks.last) == (0, "")
        assert (recorder.errors, recorder.dropped, recorder.refused) == (0, 0, 0)
        recorder.close()


def module(**more: Any) -> Any:
    """`sglang.srt.managers.scheduler`: classes of its own, for they are hooked."""
    made: Any = ModuleType("sglang.srt.managers.scheduler")
    made.Scheduler = type("Scheduler", (Scheduler,), {**vars(Scheduler), **more})
    made.Req = type("Req", (Req,), dict(vars(Req)))
    return made


def process(folder: Path, clock: Clock) -> Process:
    """A process of a server that records to `folder`."""
    return Process(folder, "sglang 0.0", Hooks(), clock)
