"""Managers and requests that end otherwise than well: what is kept of them, what the log says, and what comes after."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from fake_transformers import AsyncIOs, IOs, Processor, Status, attached, future, output, request
from fakes import Clock, Stream

import stallbook as sb
from stallbook.partition import partition
from stallbook.run import Run

pytestmark = pytest.mark.usefixtures("unhooked")
MS = 1_000_000


def closed(engine: Any, path: Path) -> Run:
    engine.process.recorder.close()
    assert engine.hooks.errors == 0, engine.hooks.last
    return sb.open(path)


def step(processor: Processor, batch: list[Any], finished: tuple[Any, ...] = (), outputs: Any = ()) -> None:
    assert processor.prepare_next_batch(batch)
    processor.model_runner.compute_batch()
    processor.update_batch(finished, outputs)


def told(run: Run) -> dict[str, list[int]]:
    """The tokens of each delivery."""
    found: dict[str, list[int]] = {}
    for who, tokens in zip(run.deliveries.request, run.deliveries.tokens, strict=True):
        found.setdefault(run.requests.names[who], []).append(int(tokens))
    return found


def test_managers_leave_no_file_open(tmp_path: Path, clock: Clock) -> None:
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        a = request("a")
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)], (a,))

    def opened() -> int:
        kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()
    first = opened()
    assert [opened() for _ in range(20)] == [first] * 20
    closed(engine, tmp_path / "a.stall")


def test_a_name_that_comes_again_after_it_was_cut_off(tmp_path: Path, clock: Clock) -> None:
    """A stream is cancelled after three tokens, the next of its name is not a stream; then their manager stops."""
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        a = request("a")
        processor.scheduler.add_waiting_request(a)
        for n in (1, 2, 3):
            step(processor, [future(a, 8 if n == 1 else 1)])
            manager.get_result(output("a", n))
        processor.scheduler.set_request_cancellation("a")
        again = request("a", streaming=False)
        assert not processor.prepare_next_batch([])
        processor.scheduler.add_waiting_request(again)
        step(processor, [future(again, 8)])
        step(processor, [future(again)], (again,))
        manager.get_result(output("a", 2, True))

    def stopped(processor: Processor) -> None:
        one = request("req_0")
        processor.scheduler.add_waiting_request(one)
        step(processor, [future(one, 8)])
        manager.get_result(output("req_0", 1))

    for does in (loop, stopped, stopped):
        manager = kind(Processor(clock, IOs(clock)), does)
        manager._run_generation_loop()
        clock.go(5)
    run = closed(engine, tmp_path / "a.stall")
    assert told(run) == {"a": [1, 1, 1], "a#2": [2], "req_0@2": [1], "req_0@3": [1]}
    assert engine.frontend.cut_off <= engine.frontend.finished.keys()
    assert (run.requests.finish > 0).all()


def test_nothing_holds_on_to_a_router_that_is_gone(tmp_path: Path, clock: Clock) -> None:
    """Callbacks were registered for requests that never came: of a manager that is recorded, and of another."""
    engine, kind = attached(tmp_path / "a.stall", clock)
    managers: list[Any] = []

    def loop(processor: Processor) -> None:
        for name, manager in zip("ab", managers, strict=True):
            manager.register_result_handler(name, id)
        assert len(engine.frontend.routed.registered) == 2

    managers += [kind(Processor(clock, IOs(clock)), loop) for _ in range(2)]
    managers[0]._run_generation_loop()
    routers = [weakref.ref(managers.pop().output_router) for _ in range(2)]
    gc.collect()
    assert [router() for router in routers] == [None, None]
    assert not engine.frontend.routed.registered
    closed(engine, tmp_path / "a.stall")


def test_one_that_is_cancelled_in_flight_gets_its_token_first(tmp_path: Path, clock: Clock, stream: Stream) -> None:
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        ios, a, b = processor.inputs_and_outputs, request("a"), request("b")
        for one in (a, b):
            processor.scheduler.add_waiting_request(one)

        def launch(batch: list[Any]) -> None:
            assert processor.prepare_next_batch(batch)
            processor.model_runner.compute_batch(10)
            ios.io_pairs[ios.current].host_io.done = stream.free
            ios.current = 1 - ios.current

        launch([future(a, 8), future(b, 8)])
        processor.scheduler.set_request_cancellation("b")
        launch([future(a)])
        processor.update_batch()
        launch([future(a)])
        processor.update_batch()
        ios.current = 1 - ios.current
        processor.update_batch([a])

    kind(Processor(clock, AsyncIOs(clock, stream)), loop)._run_generation_loop()
    run = closed(engine, tmp_path / "a.stall")
    assert (run.requests.finish > 0).all()
    b = run.requests.names.index("b")
    emitted = run.steps.emit[run.emissions.step[run.emissions.request == b]]
    assert len(emitted) == 1
    assert run.requests.finish[b] >= emitted[0]
    assert not run.notes


def test_what_an_update_that_raises_leaves_is_told(tmp_path: Path, clock: Clock) -> None:
    """Its tokens were there; and who waited, or was at work, is gone with the manager."""
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        a, b, waits = request("a"), request("b"), request("waits")
        for one in (a, b, waits):
            processor.scheduler.add_waiting_request(one)
        step(processor, [future(a, 8), future(b, 8)])

        def deliver_batch(outputs: Any) -> None:
            raise RuntimeError("the event loop is closed")

        processor.output_router.deliver_batch = deliver_batch  # type: ignore[method-assign]
        step(processor, [future(a), future(b)], (a,), [output("a", 2, True)])

    def fails(processor: Processor) -> None:
        try:
            loop(processor)
        finally:  # as the engine's loop does: active requests are finished, waiting ones dropped
            for name in list(processor.scheduler.active_requests):
                processor.scheduler.finish_request(name)

    with pytest.raises(RuntimeError, match="closed"):
        kind(Processor(clock, IOs(clock)), fails)._run_generation_loop()
    run = closed(engine, tmp_path / "a.stall")
    assert [int(n) for n in run.emissions.tokens] == [1] * 4
    assert (run.requests.finish > 0).tolist() == [True] * 3
    assert not engine.process.recorder._live  # type: ignore[union-attr]
    assert not run.notes


def test_a_scheduler_that_cannot_be_asked_costs_no_step(tmp_path: Path, clock: Clock) -> None:
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        a = request("a")
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        step(processor, [future(a)], (a,))
        del processor.scheduler.waiting_requests

    kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
    engine.process.recorder.close()  # type: ignore[union-attr]
    run = sb.open(tmp_path / "a.stall")
    assert len(run.steps.id) == 2
    assert set(run.steps.blocked.tolist()) == {-1}
    assert engine.hooks.errors


def test_a_pause_is_nobody_s_scheduling(tmp_path: Path, clock: Clock) -> None:
    """What was seen before it is in the log while it lasts."""
    engine, kind = attached(tmp_path / "a.stall", clock)
    meanwhile: list[int] = []

    class Watching(Status):
        def pause_and_wait(self) -> None:
            meanwhile.append(len(sb.open(tmp_path / "a.stall").steps.id))
            super().pause_and_wait()

    def loop(processor: Processor) -> None:
        a = request("a")
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        processor.background_thread_status.pause_ms = 3_000
        step(processor, [future(a)], (a,))

    paused = Processor(clock, IOs(clock))
    paused.background_thread_status = Watching(clock)
    kind(paused, loop)._run_generation_loop()
    assert meanwhile == [1]
    found = partition(closed(engine, tmp_path / "a.stall"))
    assert len(found.gaps) == 1
    parts = dict(zip(found.causes, found.rows.sum(axis=0).tolist(), strict=True))
    assert parts["other:pause"] == 3_000 * MS
    assert parts["sched"] < 2 * MS


def test_hooks_that_give_up_on_another_thread_are_told_by_this_one(tmp_path: Path, clock: Clock) -> None:
    """At the next batch, with what they saw until then."""
    engine, kind = attached(tmp_path / "a.stall", clock)

    def written() -> int:
        return engine.recorder._store.written  # type: ignore[union-attr]

    def gives_up() -> None:
        for _ in range(10):
            try:
                raise KeyError("a")
            except KeyError:
                engine.hooks.failed()

    def loop(processor: Processor) -> None:
        a = request("a")
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        before = written()
        other = threading.Thread(target=gives_up)
        other.start()
        other.join()
        assert written() == before
        step(processor, [future(a)])
        run = sb.open(tmp_path / "a.stall")
        assert "KeyError" in str(run.facts["hooks_off"])
        assert len(run.steps.id) == 1
        after = written()
        step(processor, [future(a)])
        assert written() == after

    kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
    engine.process.recorder.close()  # type: ignore[union-attr]


def test_a_runner_without_attributes_ends_as_any(tmp_path: Path, clock: Clock) -> None:
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(_: Processor) -> None:
        engine.runner = object()

    kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
    assert not engine.thread
    closed(engine, tmp_path / "a.stall")
