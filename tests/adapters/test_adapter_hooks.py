"""The engine never notices: hooks fail open, switch themselves off, and say what they found."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_vllm import Output, Worker, core, process, request
from fakes import Clock

from stallbook.adapters import imports, vllm
from stallbook.adapters.hooks import Hooks
from stallbook.adapters.process import FOLDER, SERVER, VARIABLE, Process, settle
from stallbook.adapters.settings import settings
from stallbook.adapters.stamps import Scopes, Stamps
from stallbook.adapters.vllm import engine as engine_hooks
from stallbook.adapters.vllm.engine import Engine
from stallbook.adapters.vllm.worker import Worker as Hooked


def test_a_hook_that_raises_costs_nothing_but_itself(
    tmp_path: Path, clock: Clock, utils: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    the_core, ours = core(clock, Worker(clock, utils)), process(tmp_path / "a.stall", clock)
    engine = Engine(the_core, ours)
    scheduler = the_core.scheduler
    scheduler.add_request(request("r1"))
    for _ in range(20):
        output = Output({"r1": 1})
        clock.go(300)  # what waits is worked off
        object.__setattr__(output, "finished_req_ids", 7)  # not what the hook expects
        assert scheduler.schedule(output) is output
        assert scheduler.update_from_output(output, {"r1": 1})[0].outputs[0].request_id == "r1"
    assert scheduler.calls.count("schedule") == scheduler.calls.count("update_from_output") == 20
    assert not ours.hooks.on
    told = capsys.readouterr().err
    assert "a hook failed, the engine goes on" in told
    assert told.count("switched off") == 1
    engine.recorder.close()


def test_what_the_engine_raises_passes_through(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    the_core = core(clock, Worker(clock, utils))
    engine = Engine(the_core, process(tmp_path / "a.stall", clock))

    def broken() -> None:
        raise KeyError("the engine's own")

    with pytest.raises(KeyError, match="the engine's own"):
        the_core.scheduler.schedule(Output({"r1": 1}), meanwhile=broken)
    assert engine.hooks.errors == 0
    engine.recorder.close()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, clock: Clock, utils: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("")
    the_core, ours = core(clock, Worker(clock, utils)), process(tmp_path / "file" / "a.stall", clock)
    Engine(the_core, ours)
    assert not ours.hooks.on
    assert the_core.scheduler.schedule(Output({"r1": 1}))
    assert "cannot write" in capsys.readouterr().err


def test_missing_functions_are_told_not_needed() -> None:
    class Engine:
        def present(self) -> int:
            return 1

    hooks = Hooks()
    assert hooks.wrap(Engine, "present", lambda original: lambda self: original(self))
    assert not hooks.wrap(Engine, "absent", lambda original: original)
    assert hooks.found == {"Engine.present": True, "Engine.absent": False}
    assert Engine().present() == 1


def test_nothing_is_wrapped_twice() -> None:
    class Engine:
        calls = 0

        @staticmethod
        def run() -> int:
            return 1

    def make(original: Any) -> Any:
        def run() -> int:
            Engine.calls += 1
            result: int = original()
            return result

        return run

    hooks = Hooks()
    assert hooks.wrap(Engine, "run", make)
    assert hooks.wrap(Engine, "run", make)
    assert (Engine.run(), Engine().run(), Engine.calls) == (1, 1, 2)


def test_the_kill_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLBOOK_RECORD", "0")
    assert not Hooks().on


def test_without_the_variable_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(vllm.PLUGIN, "registered", 0)
    before = list(sys.meta_path)
    vllm.register()
    assert sys.meta_path == before
    assert settle() is None


def test_a_second_server_gets_a_log_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.setenv(VARIABLE, str(tmp_path / "a.stall"))
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setenv(SERVER, "this one")
    assert settle() == tmp_path / "a.stall"
    assert settle() == tmp_path / "a.stall"  # a child of the same server
    (tmp_path / "a.stall").mkdir()
    (tmp_path / "a.stall" / "manifest.json").write_text("{}")
    assert settle() == tmp_path / "a.stall"
    monkeypatch.delenv(FOLDER)
    assert settle() == tmp_path / "a-2.stall"
    assert "goes to" in capsys.readouterr().err
    monkeypatch.delenv(FOLDER)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_no_role_yet(tmp_path: Path, clock: Clock) -> None:
    ours = process(tmp_path / "a.stall", clock)
    ours.become_frontend()
    ours.handles["r1"] = 0
    child = os.fork()
    if not child:
        os._exit(0 if not ours.role and ours.recorder is None and not ours.handles else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ours.role == "api:0"
    assert ours.recorder is not None
    ours.recorder.close()


def test_a_spawned_engine_takes_its_worker_s_hooks_back(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    worker, ours = Worker(clock, utils), process(tmp_path / "a.stall", clock)
    the_core = core(clock, worker)
    Hooked(the_core.model_executor.driver_worker, ours)
    assert "execute_model" in vars(worker)
    module: Any = ModuleType("vllm.v1.engine.core")

    class EngineCoreProc:
        def run_busy_loop(self) -> str:
            return "ran"

    module.EngineCoreProc = EngineCoreProc
    engine_hooks.install(module, ours)
    loop = EngineCoreProc()
    vars(loop).update(vars(the_core))
    assert loop.run_busy_loop() == "ran"
    assert ours.role == "engine"
    assert "execute_model" not in vars(worker)
    assert ours.recorder is not None
    ours.recorder.close()


def test_a_module_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waited_for.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[int] = []
    imports.when_imported("waited_for", lambda module: seen.append(module.value))
    assert not seen
    import waited_for  # type: ignore[import-not-found]

    assert seen == [1]
    assert waited_for.__spec__.loader is waited_for.__loader__
    imports.when_imported("waited_for", lambda module: seen.append(module.value + 1))
    assert seen == [1, 2]


def test_stamps_and_scopes() -> None:
    times = iter(range(10, 100))
    stamps = Stamps(lambda: next(times))
    table = Scopes()
    table["forward"] = table.scope(stamps.stamp(1), stamps.stamp(2))
    factory = table.__getitem__
    with factory("forward"):
        pass
    with factory("something else"):
        pass
    assert stamps.take() == [(10, 1), (11, 2)]
    with pytest.raises(ZeroDivisionError), factory("something else"), factory("forward"):
        _ = 1 / 0
    assert stamps.take() == [(12, 1), (13, 2)]
    endless = Stamps(lambda: 0)
    stamp = endless.stamp(1)
    for _ in range(1000):
        stamp()
    assert len(endless.take()) == 256  # what nobody takes does not pile up


def test_a_process_has_one_role(tmp_path: Path, clock: Clock) -> None:
    ours = Process(tmp_path / "a.stall", "vllm 0.0", Hooks(), clock)
    ours.become_engine(0, {}, "step")
    ours.become_frontend()
    ours.become_worker(0)
    assert ours.role == "engine"
    assert ours.recorder is not None
    ours.recorder.close()


def test_settings_are_read_by_name_and_one_that_is_not_there_is_not_known() -> None:
    config = SimpleNamespace(
        top=1,
        cache=SimpleNamespace(size=0.9, kind=None, sizes=[1, 2], dtype=Path("a"), _servers=2, mixed=[1, object()]),
    )
    wanted = {"": ("top", "gone"), "cache": ("size", "kind", "sizes", "dtype", "_servers", "gone"), "lora": ("rank",)}
    assert settings(config, wanted) == {
        "top": 1, "size": 0.9, "kind": None, "sizes": [1, 2], "dtype": "a", "servers": 2,
    }  # fmt: skip
    assert isinstance(settings(config, {"cache": ("mixed",)})["mixed"], str)
