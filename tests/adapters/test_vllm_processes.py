"""Engine core, worker and API server as processes: their spools are one recording."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from fake_vllm import Output, Worker, core, outputs, process, request, wrapped
from fakes import MS, START, Clock

import stallbook as sb
from stallbook.adapters.process import Process
from stallbook.adapters.vllm import frontend
from stallbook.adapters.vllm.engine import Engine
from stallbook.adapters.vllm.worker import Worker as Hooked
from stallbook.adapters.vllm.worker import _Step
from stallbook.notes import delays


def api_server(process: Process) -> Any:
    """What an API server keeps its requests in, hooked."""

    class OutputProcessor:
        def __init__(self) -> None:
            self.request_states: dict[str, Any] = {}
            self.state: Any = SimpleNamespace

        def add_request(self, asked: Any, prompt: str | None = None, parent: Any = None, index: int = 0) -> None:
            self.request_states[asked.request_id] = self.state()

        def process_outputs(self, made: list[Any], timestamp: float | None = None) -> str:
            return "processed"

    module: Any = ModuleType("vllm.v1.engine.output_processor")
    module.OutputProcessor = OutputProcessor
    frontend.install(module, process)
    return OutputProcessor()


def read_at(process: Process, counts: dict[str, int]) -> None:
    """The engine counts so, from here on."""
    process.frontend.counters = lambda: {name: {"0": count} for name, count in counts.items()}


def asked(name: str, ago_ms: float = 0) -> Any:
    """A request that is about to be sent to the engine core."""
    params = SimpleNamespace(max_tokens=20)
    return SimpleNamespace(
        request_id=f"{name}-0a1b2c3d",
        arrival_time=time.time() - ago_ms / 1e3,
        sampling_params=params,
        prompt_token_ids=[1] * 8,
    )


def test_a_worker_s_segments_lie_in_the_engine_s_steps(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    folder = tmp_path / "a.stall"
    engine, apart = process(folder, clock), process(folder, clock)
    the_core, worker = core(clock), Worker(clock, utils)
    hooked = Engine(the_core, engine), Hooked(wrapped(worker), apart)
    the_core.scheduler.add_request(request("r1"))
    for output in (Output({"r1": 8}, new=("r1",)), Output({"r1": 1})):
        the_core.scheduler.schedule(output)
        clock.go(2)  # the message on its way
        worker.execute_model(output)
        clock.go(1)
        worker.sample_tokens()
        clock.go(3)
        the_core.scheduler.update_from_output(output, {"r1": 1})
    for side in hooked:
        assert side.later is not None
        side.later.flush()
    for one in (engine, apart):
        assert one.recorder is not None
        assert (one.hooks.errors, one.recorder.errors) == (0, 0)
        one.recorder.close()
    assert [apart.role, engine.role] == ["worker:0", "engine"]
    p = sb.partition(sb.open(folder))
    assert p.run.notes == {}
    assert dict(zip(p.causes, (p.parts()[0] / MS).tolist(), strict=True)) == {
        "prefill": 0, "preempt": 0, "graph": 0, "gc": 0, "tok": 0, "fwd": 5, "residual": 0, "sched": 1, "sample": 1,
        "output": 1, "other:ipc": 6, "other:logits": 1, "other:runner": 2,
    }  # fmt: skip
    assert p.run.facts["worker:0.hooks"]["vllm.v1.utils._PROFILER_FUNC"]


def test_a_step_that_the_engine_never_ended_is_counted(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    folder = tmp_path / "a.stall"
    engine, apart = process(folder, clock), process(folder, clock)
    the_core, worker = core(clock), Worker(clock, utils)
    hooked = Engine(the_core, engine), Hooked(wrapped(worker), apart)
    the_core.scheduler.add_request(request("r1"))
    for output in (Output({"r1": 8}, new=("r1",)), Output({"r1": 1})):
        the_core.scheduler.schedule(output)
        worker.execute_model(output)
        worker.sample_tokens()
        if output.new:
            the_core.scheduler.update_from_output(output, {"r1": 1})
    for side in hooked:
        assert side.later is not None
        side.later.flush()
    run = sb.open(folder)  # killed, all of them
    assert run.notes == {"unfinished_steps": 1}
    assert len(run.steps.id) == 1


def test_a_worker_that_samples_nothing_writes_what_it_saw(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    """A pooling model's answer is that of `execute_model`."""
    apart = process(tmp_path / "a.stall", clock)
    the_core, worker = core(clock), Worker(clock, utils)
    engine = Engine(the_core, process(tmp_path / "a.stall", clock))
    execute = worker.execute_model
    worker.execute_model = lambda output: (execute(output), "pooled")[1]  # type: ignore[method-assign,assignment,misc]
    hooked, most = Hooked(wrapped(worker), apart), 0
    the_core.scheduler.add_request(request("r1"))
    for n in range(200):
        output = Output({"r1": 8 if not n else 1}, new=("r1",) if not n else ())
        the_core.scheduler.schedule(output)
        assert worker.execute_model(output) == "pooled"
        assert hooked.later is not None
        most = max(most, len(hooked.later.entries))
        the_core.scheduler.update_from_output(output, {"r1": 1})
    assert 40 < most < 60
    assert engine.hooks.errors == apart.hooks.errors == 0


def test_a_delay_is_told_though_its_step_waits_for_the_device(
    tmp_path: Path, clock: Clock, utils: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays, "shared", lambda stretches, waited: [waited for _ in stretches])
    apart = process(tmp_path / "a.stall", clock)
    hooked = Hooked(wrapped(Worker(clock, utils)), apart)
    assert hooked._begin() is not None
    counted, seen = [6 * MS, 0], list[list[Any] | None]([None, []])
    hooked.waits = lambda now: counted.pop(0) if counted else 0  # type: ignore[assignment]
    hooked.lane = cast(Any, SimpleNamespace(windows=lambda track, now: seen.pop(0)))
    step = _Step(1, cast(Any, object()))
    step.calls, step.length, step.used = [(clock.now, clock.now + 10 * MS)], 10 * MS, 2 * MS
    hooked.steps.append(step)
    for _ in range(2):
        clock.go(20)
        hooked._write(clock.now)
    assert not hooked.steps
    assert step.delay == 6 * MS


def test_only_the_worker_that_answers_records_segments(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    engine, apart, worker = (
        process(tmp_path / "a.stall", clock),
        process(tmp_path / "a.stall", clock),
        Worker(clock, utils),
    )
    the_core = core(clock)
    hooked = Engine(the_core, engine), Hooked(wrapped(worker, tensor_parallel_size=2, world_size=4), apart)
    the_core.scheduler.add_request(request("r1"))
    output = Output({"r1": 1})
    the_core.scheduler.schedule(output)
    worker.execute_model(output)
    worker.sample_tokens()  # of the first stage of two
    the_core.scheduler.update_from_output(output, {"r1": 1})
    for side in hooked:
        assert side.later is not None
        side.later.flush()
    run = sb.open(tmp_path / "a.stall")
    assert sorted({run.names[i] for i in run.segments.name}) == ["ipc", "output", "sched"]
    assert "worker:0" in run.facts["processes"]


def test_what_a_frontend_adds(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a.stall"
    engine, front = process(folder, clock), process(folder, clock)
    now = 1_796_000_000 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: now + clock.now)
    monkeypatch.setattr(time, "time", lambda: (now + clock.now) / 1e9)
    the_core, api = core(clock), api_server(front)
    hooked = Engine(the_core, engine)
    one = asked("cmpl-1")
    clock.go(4)  # tokenized
    api.add_request(one)
    clock.go(2)  # sent
    the_core.scheduler.add_request(request(one.request_id))
    for output in (Output({one.request_id: 8}, new=(one.request_id,)), *(Output({one.request_id: 1}),) * 2):
        made = Output(dict(output.num_scheduled_tokens), output.new)
        the_core.scheduler.schedule(made)
        result = the_core.scheduler.update_from_output(made, {one.request_id: 1})
        clock.go(3)  # on its way back
        assert api.process_outputs(result[0].outputs) == "processed"
    api.process_outputs(outputs({"of another engine": 1})[0].outputs)
    hooked.later.flush()
    assert (engine.hooks.errors, front.hooks.errors, front.role) == (0, 0, "api:0")
    for each in (engine, front):
        assert each.recorder is not None
        each.recorder.close()
    run = sb.open(folder)
    assert run.requests.names == ("cmpl-1-0a1b2c3d",)
    assert abs(int(run.requests.arrive[0]) - START) < 1000  # a float of seconds since 1970 has no more
    holds = {run.names[k]: (b - a) / MS for k, a, b in zip(run.holds.kind, run.holds.t0, run.holds.t1, strict=True)}
    assert holds == {"handoff": 2, "tokenize": pytest.approx(4, abs=1e-3)}
    assert run.deliveries.tokens.tolist() == [1, 1, 1]
    waits = sb.partition(run)
    assert waits.reconcile.max_error_ns == 0


def test_engines_of_a_data_parallel_server_have_logs_of_their_own(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "a.stall"
    front, engines = process(folder, clock), [process(folder, clock) for _ in range(2)]
    api = api_server(front)
    for index, engine in enumerate(engines):
        the_core = core(clock, index=index)
        hooked = Engine(the_core, engine)
        one = asked(f"cmpl-{index}")
        api.add_request(one)
        the_core.scheduler.add_request(request(one.request_id))
        output = Output({one.request_id: 8}, new=(one.request_id,))
        the_core.scheduler.schedule(output)
        api.process_outputs(the_core.scheduler.update_from_output(output, {one.request_id: 1})[0].outputs)
        hooked.later.flush()
    for each in (front, *engines):
        assert each.recorder is not None
        each.recorder.close()
    runs = [sb.open(folder), sb.open(tmp_path / "a.dp1.stall")]
    assert [run.requests.names for run in runs] == [("cmpl-0-0a1b2c3d",), ("cmpl-1-0a1b2c3d",)]
    assert [run.deliveries.tokens.tolist() for run in runs] == [[1], [1]]


def test_several_frontends_find_names(tmp_path: Path, clock: Clock) -> None:
    fronts = [process(tmp_path / "a.stall", clock) for _ in range(3)]
    for front in fronts:
        front.become_frontend()
    assert [front.role for front in fronts] == ["api:0", "api:1", "api:2"]
    for front in fronts:
        assert front.recorder is not None
        front.recorder.close()
