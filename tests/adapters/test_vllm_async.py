"""A device and async scheduling, on a planted timeline, through the adapter's own data path.

Two steps are in flight: while the device runs step 2 the host schedules step 3. What the host does behind a busy device
is hidden, a request that is evicted still gets the token that was in flight, and what nobody hides is charged.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_vllm import Output, Worker, core, process, request, wrapped
from fakes import MS, START, Clock, Stream, gaps

import stallbook as sb
from stallbook.adapters.device import DeviceLane, Track
from stallbook.adapters.vllm.engine import Engine
from stallbook.adapters.vllm.worker import Worker as Hooked


class DeviceWorker(Worker):
    """Launches and does not wait."""

    def __init__(self, clock: Clock, utils: ModuleType, stream: Stream) -> None:
        super().__init__(clock, utils)
        self.stream = stream

    def scope(self, name: str, ms: float) -> None:
        with self.utils.record_function_or_nullcontext(f"gpu_model_runner: {name}"):
            self.stream.work({"forward": 10, "postprocess": 1, "sample": 1}.get(name, 0))
            self.clock.go(ms)

    def execute_model(self, output: Output, forward: float = 1) -> None:
        super().execute_model(output, forward)

    def sample_tokens(self, grammar: Any = None) -> str:
        self.scope("sample", 1)
        self.scope("bookkeep", 0)
        self.scope("eplb", 0)
        return "tokens on their way"


def planted(folder: Path, clock: Clock, utils: ModuleType, stream: Stream) -> None:
    """The timeline of this module, in ms: see the comments."""
    worker = DeviceWorker(clock, utils, stream)
    the_core, engine = core(clock, worker), process(folder, clock)
    hooked = Engine(the_core, engine)
    scheduler, recorder = the_core.scheduler, engine.recorder
    assert recorder is not None
    both = {name: request(name) for name in ("r1", "r2")}
    for one in both.values():
        scheduler.add_request(one)

    def launch(output: Output, **more: Any) -> Output:
        scheduler.schedule(output, **more)  # 1 ms
        worker.execute_model(output)  # 3 ms, and 11 on the device
        worker.sample_tokens()  # 1 ms, and 1 on the device
        return output

    def preempt() -> None:
        clock.go(0.5)
        scheduler._preempt_request(both["r2"], 0.0)

    first = launch(Output({"r1": 8, "r2": 8}, new=("r1", "r2")))  # 0 to 5; device: 2 to 12 to 14
    second = launch(Output({"r1": 1, "r2": 1}))  # 5 to 10; device: 14 to 24 to 26
    clock.to(15)
    scheduler.update_from_output(first, {"r1": 1, "r2": 1})  # 15 to 16
    third = launch(Output({"r1": 1}), meanwhile=preempt, ms=0.5)  # 16 to 21, r2 is out at 16.5; device: 26 to 36 to 38
    clock.to(24)
    recorder.pause(START + 22 * MS, START + 24 * MS, 2)
    clock.to(27)
    scheduler.update_from_output(second, {"r1": 1, "r2": 1})  # 27 to 28: r2's token was in flight
    fourth = launch(Output({"r1": 1, "r2": 10}, resumed=("r2",)))  # 28 to 33, r2 is back at 29; device: 38 to 48 to 50
    clock.to(39)
    scheduler.update_from_output(third, {"r1": 1})  # 39 to 40
    clock.to(53)
    scheduler.update_from_output(fourth, {"r1": 1, "r2": 1})
    recorder.pause(START + 51 * MS, START + 52 * MS, 2)
    hooked.later.flush()
    assert (engine.hooks.errors, recorder.errors, recorder.dropped, recorder.refused) == (0, 0, 0, 0)
    recorder.close()


def test_hidden_work_is_not_charged(tmp_path: Path, clock: Clock, utils: ModuleType, stream: Stream) -> None:
    planted(tmp_path / "a.stall", clock, utils, stream)
    found = gaps(tmp_path / "a.stall")
    # 15 to 27: the device to 26, though the host scheduled from 16 and collected from 22; then 1 ms until it was told
    assert found["r1", 15.0] == {"fwd": 9, "sample": 2, "other:dispatch": 1}
    assert found["r1", 27.0] == {"fwd": 9, "sample": 2, "other:dispatch": 1}
    p = sb.partition(sb.open(tmp_path / "a.stall"))
    assert "gc" in p.causes
    assert p.hidden.sum() > 0


def test_what_no_device_hides_is_charged(tmp_path: Path, clock: Clock, utils: ModuleType, stream: Stream) -> None:
    planted(tmp_path / "a.stall", clock, utils, stream)
    found = gaps(tmp_path / "a.stall")
    # 39 to 53: a mixed step on the device to 50, a collection from 51 to 52
    assert found["r1", 39.0] == {
        "fwd": pytest.approx(9 / 11, abs=1e-5), "prefill": pytest.approx(9 - 9 / 11, abs=1e-5), "sample": 2, "gc": 1,
        "other:dispatch": 2,
    }  # fmt: skip


def test_tokens_in_flight_of_an_evicted_request(
    tmp_path: Path, clock: Clock, utils: ModuleType, stream: Stream
) -> None:  # fmt: skip
    planted(tmp_path / "a.stall", clock, utils, stream)
    found = gaps(tmp_path / "a.stall")
    assert found["r2", 15.0] == {"fwd": 1.5, "preempt": 10.5}  # out from 16.5 on, and its token came at 27
    assert found["r2", 27.0]["preempt"] == 2  # until 29
    assert sum(found["r2", 27.0].values()) == 26
    assert sb.open(tmp_path / "a.stall").notes["emissions_in_eviction"] == 1


def test_a_worker_of_its_own_writes_when_its_device_is_done(
    tmp_path: Path, clock: Clock, utils: ModuleType, stream: Stream
) -> None:  # fmt: skip
    folder = tmp_path / "a.stall"
    engine, apart = process(folder, clock), process(folder, clock)
    the_core, worker = core(clock), DeviceWorker(clock, utils, stream)
    hooked = Engine(the_core, engine), Hooked(wrapped(worker), apart)
    the_core.scheduler.add_request(request("r1"))
    made = [Output({"r1": 8}, new=("r1",)), Output({"r1": 1}), Output({"r1": 1})]
    for i, output in enumerate(made):
        the_core.scheduler.schedule(output)
        worker.execute_model(output)
        worker.sample_tokens()
        if i:
            clock.go(8)
            the_core.scheduler.update_from_output(made[i - 1], {"r1": 1})
    for side in hooked:
        assert side.later is not None
        side.later.flush()
    for each in (engine, apart):
        assert each.recorder is not None
        assert (each.hooks.errors, each.recorder.errors) == (0, 0)
        each.recorder.close()
    run = sb.open(folder)
    device = run.segments.device == 1
    assert [run.names[i] for i in run.segments.name[device]] == ["decode", "sample"] * 2  # the third step's is not done
    assert ((run.segments.t0[device] - START) / MS).tolist() == [2, 12, 14, 24]
    assert sb.partition(run).reconcile.max_error_ns == 0


def test_the_pin_is_corrected_and_moves_along(clock: Clock) -> None:
    stream = Stream(clock)
    lane = DeviceLane(lambda: stream.event(True), clock)
    lane._pinned -= 3 * MS  # a calibration that was off
    for _ in range(4):
        track = Track()
        lane.mark(track, 0)
        stream.work(10)
        lane.mark(track)
        assert lane.windows(track, clock.now) is None
        start = clock.now
        clock.go(900)
        assert lane.windows(track, clock.now) == [(0, start, start + 10 * MS)]
    assert lane._pinned > START


def test_without_a_device_there_is_no_lane(
    tmp_path: Path, clock: Clock, utils: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    cuda = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    engine = Engine(core(clock, Worker(clock, utils)), process(tmp_path / "a.stall", clock))
    assert engine.noter.device is None
    engine.recorder.close()
