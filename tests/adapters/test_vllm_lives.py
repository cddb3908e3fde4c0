"""Nothing grows for ever, and nothing of an engine that is gone is held: requests, engines, logs, one after another."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_vllm import Output, Scheduler, Worker, core, outputs, process, request
from fakes import Clock
from test_vllm_processes import api_server, asked, read_at

import stallbook as sb
from stallbook.adapters.hooks import Hooks
from stallbook.adapters.process import SERVER, Process
from stallbook.adapters.vllm import engine as engine_hooks
from stallbook.adapters.vllm.engine import Engine
from stallbook.adapters.vllm.worker import Worker as Hooked

DELTA = SimpleNamespace(name="DELTA")


def test_a_frontend_forgets_requests_however_they_end(tmp_path: Path, clock: Clock) -> None:
    front = process(tmp_path / "a.stall", clock)
    api = api_server(front)
    for i in range(1000):
        one = asked(f"cmpl-{i}")
        api.add_request(one)
        if i > 10:
            del api.request_states[asked(f"cmpl-{i - 10}").request_id]  # done, stopped, or given up
    assert len(front.handles) < 150
    assert {asked(f"cmpl-{i}").request_id for i in range(990, 1000)} <= front.handles.keys()
    assert front.recorder is not None
    assert len(front.recorder._live) == len(front.handles)
    assert (front.hooks.errors, front.recorder.refused) == (0, 0)
    front.recorder.close()


def test_each_of_several_answers_is_a_request(tmp_path: Path, clock: Clock) -> None:
    engine, front = process(tmp_path / "a.stall", clock), process(tmp_path / "a.stall", clock)
    the_core, api = core(clock), api_server(front)
    hooked = Engine(the_core, engine)
    names = [f"{i}_cmpl-1-0a1b2c3d" for i in range(2)]
    for name in names:
        child = asked("")
        child.request_id = name
        api.add_request(child, None, "parent", 0)
        the_core.scheduler.add_request(request(name))
    output = Output(dict.fromkeys(names, 8), new=tuple(names))
    the_core.scheduler.schedule(output)
    api.process_outputs(the_core.scheduler.update_from_output(output, dict.fromkeys(names, 1))[0].outputs)
    hooked.later.flush()
    for each in (engine, front):
        assert each.recorder is not None
        each.recorder.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.requests.names == tuple(names)
    assert run.deliveries.tokens.tolist() == [1, 1]


def test_tokens_that_are_held_back_are_handed_out_together(tmp_path: Path, clock: Clock) -> None:
    """With `--stream-interval 3`: the first at once, then by threes, and what is left at the end."""
    front = process(tmp_path / "a.stall", clock)
    api = api_server(front)
    api.state = lambda: SimpleNamespace(stream_interval=3, sent_tokens_offset=0, output_kind=DELTA)
    one = asked("cmpl-1")
    api.add_request(one)
    other = asked("cmpl-2")
    api.state = SimpleNamespace
    api.add_request(other)
    handed: list[tuple[list[str], list[int]]] = []
    front.frontend.handed = lambda requests, tokens, t: handed.append((requests, tokens))
    sent = [1, 1, 1, 4, 4]
    for offset in sent:
        api.request_states[one.request_id].sent_tokens_offset = offset
        api.process_outputs(outputs({one.request_id: 1, other.request_id: 1})[0].outputs)
    del api.request_states[one.request_id]  # it is done
    api.process_outputs(outputs({one.request_id: 1})[0].outputs)
    both, alone = [one.request_id, other.request_id], [other.request_id]
    assert handed == [(both, [1, 1]), (alone, [1]), (alone, [1]), (both, [3, 1]), (alone, [1]), (both[:1], [2])]
    assert not front.frontend.held
    assert front.recorder is not None
    front.recorder.close()


def test_an_id_that_comes_again_at_once_is_another_request(
    tmp_path: Path, clock: Clock, utils: ModuleType
) -> None:  # fmt: skip
    ours, the_core = process(tmp_path / "a.stall", clock), core(clock, Worker(clock, utils))
    engine = Engine(the_core, ours)
    for done in (set[str](), {"r1"}):
        if done:
            the_core.scheduler.schedule(Output({"r0": 1}, finished_req_ids=done))
        the_core.scheduler.add_request(request("r1"))
        output = Output({"r1": 8}, new=("r1",))
        the_core.scheduler.schedule(output)
        the_core.scheduler.update_from_output(output, {"r1": 1})
    engine.later.flush()
    assert ours.recorder is not None
    ours.recorder.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.requests.names == ("r1", "r1#2")
    assert len(run.emissions.step) == 2


def test_an_engine_that_is_gone_is_not_held(
    tmp_path: Path, clock: Clock, utils: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    worker, ours = Worker(clock, utils), process(tmp_path / "a.stall", clock)
    the_core = core(clock, worker)
    Hooked(the_core.model_executor.driver_worker, ours)
    Engine(the_core, ours)
    scheduler = the_core.scheduler
    scheduler.add_request(request("r1"))
    output = Output({"r1": 8}, new=("r1",))
    scheduler.schedule(output)
    scheduler.update_from_output(output, {"r1": 1})
    assert utils._PROFILER_FUNC is not None
    held = [weakref.ref(one) for one in (the_core, scheduler, worker)]
    module: Any = ModuleType("vllm.v1.engine.core")
    module.EngineCore = type("EngineCore", (), {})
    engine_hooks.install(module, ours)
    module.EngineCore()
    assert "an engine is not recorded" in capsys.readouterr().err
    del the_core, scheduler, worker
    gc.collect()
    assert [one() for one in held] == [None, None, None]
    assert utils._PROFILER_FUNC is None
    assert ours.recorder is not None
    ours.recorder.close()
    assert len(sb.open(tmp_path / "a.stall").steps.id) == 1  # and what it did is written


def test_of_two_engines_of_a_program_the_first_is_recorded(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    front, engines = process(tmp_path / "a.stall", clock), [process(tmp_path / "a.stall", clock) for _ in range(2)]
    api = api_server(front)
    Engine(core(clock), engines[0])
    api.add_request(asked("cmpl-1"))
    api.request_states.clear()
    read_at(front, {"preemptions": 3, "generation_tokens": 5})
    api.process_outputs(outputs({asked("cmpl-1").request_id: 1})[0].outputs)
    other = type(api)()  # it counts anew
    read_at(front, {"preemptions": 0, "generation_tokens": 0})
    Engine(core(clock), engines[1])
    other.add_request(asked("cmpl-2"))
    other.process_outputs(outputs({asked("cmpl-2").request_id: 1})[0].outputs)
    assert asked("cmpl-2").request_id not in front.handles
    assert [one.hooks.on for one in engines] == [True, False]
    assert "holds the log of another engine" in capsys.readouterr().err
    for each in (front, engines[0]):
        assert each.recorder is not None
        each.recorder.close()
    told = sb.open(tmp_path / "a.stall").facts["api:0.counters"]
    assert told == {"preemptions": {"0": 3}, "generation_tokens": {"0": 5}}


def test_of_two_servers_that_started_at_once_the_first_is_recorded(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """Both settled on the folder before there was anything in it."""
    servers: list[list[Process]] = []
    for name in ("one", "other"):
        monkeypatch.setenv(SERVER, name)
        servers.append([process(tmp_path / "a.stall", clock) for _ in range(2)])
    for engine, front in servers:
        Engine(core(clock), engine)
        api_server(front).add_request(asked("cmpl-1"))
    assert [[one.hooks.on for one in server] for server in servers] == [[True, True], [False, False]]
    assert capsys.readouterr().err.count("holds the log of another engine") == 2
    assert sorted(path.name for path in (tmp_path / "a.stall").glob("*.spool")) == ["api-0.spool", "engine.spool"]
    for one in servers[0]:
        assert one.recorder is not None
        one.recorder.close()
    assert sb.open(tmp_path / "a.stall").facts["processes"].keys() == {"engine", "api:0"}


def test_a_frontend_that_cannot_write_says_so_once(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("")
    front = process(tmp_path / "file" / "a.stall", clock)
    api = api_server(front)
    tried: list[object] = []
    monkeypatch.setattr(os, "open", lambda *words, **more: tried.append(words))
    for i in range(3):
        api.add_request(asked(f"cmpl-{i}"))
    assert not front.hooks.on
    assert not tried
    assert capsys.readouterr().err.count("cannot write") == 1


def test_the_report_says_that_hooks_switched_themselves_off(
    tmp_path: Path, clock: Clock, utils: ModuleType
) -> None:  # fmt: skip
    the_core, ours = core(clock, Worker(clock, utils)), process(tmp_path / "a.stall", clock)
    engine = Engine(the_core, ours)
    the_core.scheduler.add_request(request("r1"))
    for number in range(40):
        output: Any = Output({"r1": 1}, new=("r1",) if not number else ())
        if number > 20:
            clock.go(600)
            object.__setattr__(output, "finished_req_ids", 7)
        the_core.scheduler.schedule(output)
        the_core.scheduler.update_from_output(output, {"r1": 1})
        if number == 20:
            engine.later.flush()
    assert not ours.hooks.on
    engine.recorder.close()
    told = " ".join(str(sb.report(sb.open(tmp_path / "a.stall"))).split())
    assert "SWITCHED OFF in engine after errors of their own" in told
    assert Hooks().tell is None


def test_a_scheduler_of_someone_s_own_has_other_queues(
    tmp_path: Path, clock: Clock, utils: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for name in ("max_num_scheduled_tokens", "max_num_running_reqs"):
        monkeypatch.delattr(Scheduler, name)
    ours, the_core = process(tmp_path / "a.stall", clock), core(clock, Worker(clock, utils))
    del the_core.scheduler.waiting, the_core.scheduler.running
    engine = Engine(the_core, ours)
    the_core.scheduler.add_request(request("r1"))
    output = Output({"r1": 8}, new=("r1",))
    the_core.scheduler.schedule(output)
    the_core.scheduler.update_from_output(output, {"r1": 1})
    engine.later.flush()
    assert ours.hooks.errors == 0
    engine.recorder.close()
    assert len(sb.open(tmp_path / "a.stall").steps.id) == 1
