"""What hooks noted on its way to the log, where something else goes wrong meanwhile."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_sglang import Batch, Hooked
from fake_vllm import Output, Worker, core, process, request
from fakes import Clock, Stream

import stallbook as sb
from stallbook.adapters.device import DeviceLane
from stallbook.adapters.vllm.engine import Engine


def tokens(folder: Path) -> dict[str, int]:
    run = sb.open(folder)
    found: Counter[str] = Counter()
    for who, count in zip(run.emissions.request.tolist(), run.emissions.tokens.tolist(), strict=True):
        found[run.requests.names[who]] += count
    return dict(found)


def test_an_error_of_the_device_costs_its_windows_alone(
    tmp_path: Path, clock: Clock, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    served = Hooked(tmp_path / "a.stall", clock, stream=stream)
    batch, windows, calls = Batch([served.req("r", limit=300)]), DeviceLane.windows, 0

    def failing(*told: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 60:
            raise RuntimeError("an event of another context")
        return windows(*told)

    monkeypatch.setattr(DeviceLane, "windows", failing)
    for step in range(200):
        served.scheduler.normal(batch if step else Batch(batch.reqs, [8]))
    assert served.process.hooks.errors == 1
    served.process.hooks.errors, served.process.hooks.last = 0, ""
    served.close()
    assert tokens(tmp_path / "a.stall") == {"r": 200}


def test_two_of_one_name_that_are_done_at_once(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    reqs = [served.req("r", limit=2), served.req("r", limit=2), served.req("s", limit=4)]
    for chunks in ([8, 8, 8], None):
        served.scheduler.normal(Batch(reqs, chunks))
    for _ in range(2):
        served.scheduler.normal(Batch(reqs[2:]))
    served.close()  # no error
    assert tokens(tmp_path / "a.stall")["s"] == 4


def test_who_came_while_a_flush_was_lost_is_told_from_then_on(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    first = served.req("a", limit=300)
    served.scheduler.normal(Batch([first], [8]))
    served.engine.later.flush()
    second = served.req("b", limit=300)
    served.scheduler.normal(Batch([second], [8]))
    served.engine.later.entries.append(0.5)  # no number that can be noted
    served.engine.later.flush()
    batch = Batch([first, second])
    for _ in range(10):
        served.scheduler.normal(batch)
    assert served.process.hooks.errors == 1
    served.process.hooks.errors, served.process.hooks.last = 0, ""
    served.close()
    assert sb.open(tmp_path / "a.stall").notes == {"untold_notes": 1}
    assert tokens(tmp_path / "a.stall") == {"a": 11, "b": 11}  # with what b's answer had grown by meanwhile


def test_a_graph_dispatcher_that_is_asked_without_steps_fills_nothing(
    tmp_path: Path, clock: Clock, utils: object
) -> None:
    """As by a data-parallel rank that idles while the others work."""
    worker, ours = Worker(clock, utils), process(tmp_path / "a.stall", clock)
    dispatched = ("FULL", SimpleNamespace(num_tokens=1))
    worker.model_runner.cudagraph_dispatcher = SimpleNamespace(cudagraph_mode="FULL", dispatch=lambda _: dispatched)
    engine_core = core(clock, worker)
    engine = Engine(engine_core, ours)
    for _ in range(2_000):
        worker.model_runner.cudagraph_dispatcher.dispatch(1)
    assert not engine.later.entries
    assert len(engine.noter.graphs) <= 256


def test_an_engine_that_schedules_nothing_writes_nothing(tmp_path: Path, clock: Clock, utils: object) -> None:
    """As while requests wait for a grammar, or for a cache of another machine."""
    ours, engine_core = process(tmp_path / "a.stall", clock), core(clock, Worker(clock, utils))
    engine, scheduler = Engine(engine_core, ours), engine_core.scheduler
    scheduler.add_request(request("a"))
    assert ours.recorder is not None
    assert ours.recorder._store is not None
    before = ours.recorder._store.written
    for _ in range(1_000):
        scheduler.schedule(Output({}), ms=0.2)
    engine.later.flush()
    assert ours.recorder._store.written - before < 10_000  # its books, now and then
