"""What the adapter touches of vLLM, and no more, on a clock that a test moves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fakes import Clock

from stallbook.adapters.hooks import Hooks
from stallbook.adapters.process import Process


@dataclass
class Output:
    """A `SchedulerOutput`."""

    num_scheduled_tokens: dict[str, int]
    new: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()
    finished_req_ids: set[str] = field(default_factory=set)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())

    @property
    def scheduled_new_reqs(self) -> list[Any]:
        return [SimpleNamespace(req_id=name) for name in self.new]

    @property
    def scheduled_cached_reqs(self) -> Any:
        return SimpleNamespace(resumed_req_ids=set(self.resumed), req_ids=[])


def outputs(tokens: Mapping[str, int]) -> dict[int, Any]:
    """What `update_from_output` returns."""
    made = [SimpleNamespace(request_id=name, new_token_ids=[7] * n) for name, n in tokens.items()]
    return {0: SimpleNamespace(outputs=made)}


class Scheduler:
    """Does what it is told, and takes as long as it is told."""

    max_num_scheduled_tokens, max_num_running_reqs = 512, 32

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.calls: list[str] = []

    def schedule(self, output: Output, ms: float = 1, meanwhile: Callable[[], None] = lambda: None) -> Output:
        self.calls.append("schedule")
        meanwhile()
        self.clock.go(ms)
        return output

    def update_from_output(self, output: Output, tokens: Mapping[str, int], ms: float = 1) -> dict[int, Any]:
        self.calls.append("update_from_output")
        self.clock.go(ms)
        return outputs(tokens)

    def _preempt_request(self, request: Any, timestamp: float) -> None:
        self.calls.append("_preempt_request")
        request.num_computed_tokens = 0

    def add_request(self, request: Any) -> None:
        self.calls.append("add_request")


def request(name: str, prompt: int = 8, limit: int = 20) -> Any:
    """A vLLM request in the engine core."""
    return SimpleNamespace(request_id=name, num_prompt_tokens=prompt, max_tokens=limit, num_computed_tokens=prompt)


def config(**parallel: Any) -> Any:
    """A `VllmConfig`."""
    told = {"tensor_parallel_size": 1, "world_size": 1, "data_parallel_index": 0} | parallel
    return SimpleNamespace(parallel_config=SimpleNamespace(**told))


class Worker:
    """A worker whose runner enters vLLM's scopes."""

    def __init__(self, clock: Clock, utils: ModuleType) -> None:
        self.clock, self.utils = clock, utils
        self.model_runner = SimpleNamespace()

    def scope(self, name: str, ms: float) -> None:
        with self.utils.record_function_or_nullcontext(f"gpu_model_runner: {name}"):
            self.clock.go(ms)

    def execute_model(self, output: Output, forward: float = 5) -> None:
        self.scope("preprocess", 1)
        self.scope("forward", forward)
        self.scope("postprocess", 1)

    def sample_tokens(self, grammar: Any = None) -> str:
        self.scope("sample", 1)
        self.scope("bookkeep", 1)
        self.scope("eplb", 0)
        return "tokens"


class Core(SimpleNamespace):
    """An `EngineCore`."""


def core(clock: Clock, inside: Worker | None = None, index: int = 0) -> Any:
    """An engine core; with a worker inside, or none."""
    executor = SimpleNamespace(driver_worker=wrapped(inside)) if inside else SimpleNamespace()

    def step() -> None:
        return

    return Core(
        scheduler=Scheduler(clock), model_executor=executor, engine_index=index, vllm_config=config(), step_fn=step
    )


def wrapped(worker: Worker, **more: Any) -> Any:
    """A `WorkerWrapperBase`."""
    return SimpleNamespace(worker=worker, global_rank=0, vllm_config=config(**more))


@contextmanager
def vllm_utils() -> Iterator[ModuleType]:
    """`vllm.v1.utils`, as far as scopes go."""
    module = ModuleType("vllm.v1.utils")
    told: Any = module
    told._PROFILER_FUNC = None

    class Null:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    def record_function_or_nullcontext(name: str) -> Any:
        return told._PROFILER_FUNC(name) if told._PROFILER_FUNC else Null()

    told.record_function_or_nullcontext = record_function_or_nullcontext
    before = sys.modules.get("vllm.v1.utils")
    sys.modules["vllm.v1.utils"] = module
    try:
        yield module
    finally:
        if before is None:
            del sys.modules["vllm.v1.utils"]
        else:
            sys.modules["vllm.v1.utils"] = before


@pytest.fixture
def utils() -> Iterator[ModuleType]:
    """vLLM's scopes."""
    with vllm_utils() as module:
        yield module


def process(folder: Path, clock: Clock) -> Process:
    """A process of a server that records to `folder`."""
    return Process(folder, "vllm 0.0", Hooks(), clock)
