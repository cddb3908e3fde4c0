"""transformers' generation thread on planted timelines: what each ms of each gap is charged to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_transformers import AsyncIOs, IOs, Manager, Processor, attached, future, output, request
from fakes import MS, START, Clock, Stream, gaps

import stallbook as sb
from stallbook.adapters.transformers.batches import Batches
from stallbook.run import Run

pytestmark = pytest.mark.usefixtures("unhooked")

Loop = Callable[[Processor], object]


def recorded(folder: Path, clock: Clock, processor: Processor, loop: Loop) -> Run:
    """The log of one manager's life."""
    engine, kind = attached(folder, clock)
    kind(processor, loop)._run_generation_loop()
    recorder = engine.process.recorder
    assert recorder is not None
    assert (engine.hooks.errors, engine.hooks.last) == (0, "")
    assert (recorder.errors, recorder.dropped, recorder.refused) == (0, 0, 0)
    recorder.close()
    return sb.open(folder)


def step(
    processor: Processor, batch: Sequence[Any], finished: Sequence[Any] = (), outputs: Sequence[Any] = (), **more: Any
) -> None:
    """One turn of the loop: 1 ms of scheduling, 1 of laying out, 5 of forward pass, 1 of sampling, 1 of output."""
    assert processor.prepare_next_batch(batch, **more)
    processor.model_runner.compute_batch()
    processor.update_batch(finished, outputs)


def evicting(processor: Processor, *starved: Any) -> Callable[[], object]:
    """What a scheduler does whose starved requests are to lose their cache."""

    def meanwhile() -> None:
        processor.scheduler.starved_requests = [(one, 1) for one in starved]
        processor.offloading_manager.offload_requests()

    return meanwhile


def test_a_step_and_what_it_is_made_of(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        a, b = request("a"), request("b")
        for one in (a, b):
            processor.scheduler.add_waiting_request(one)
        step(processor, [future(a, 8), future(b, 8)])  # 0 to 9, its tokens at 8
        clock.go(0.5)
        step(processor, [future(a), future(b)], finished=[b])  # 9.5 to 18.5, its tokens at 17.5
        step(processor, [future(a)], finished=[a])  # 18.5 to 27.5, its token at 26.5
        assert not processor.prepare_next_batch([])

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock)), loop)
    step_two = {"output": 1, "other:loop": 0.5, "sched": 1, "other:runner": 1, "fwd": 5, "sample": 1}
    found = gaps(tmp_path / "a.stall")
    assert found == {
        ("a", 8): step_two, ("b", 8): step_two,
        ("a", 17.5): {"output": 1, "sched": 1, "other:runner": 1, "fwd": 5, "sample": 1},
    }  # fmt: skip
    assert run.steps.decode_tokens.tolist() == [0, 2, 1]
    assert run.steps.prefill_tokens.tolist() == [16, 0, 0]
    assert (run.requests.prompt_tokens.tolist(), run.requests.max_tokens.tolist()) == ([8, 8], [20, 20])
    assert run.config["page_size"] == 16
    assert not [name for name, there in run.facts["hooks"].items() if not there]


def test_a_soft_reset_is_an_eviction_whose_cache_is_lost(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        a, b = request("a"), request("b")
        for one in (a, b):
            processor.scheduler.add_waiting_request(one)
        step(processor, [future(a, 8), future(b, 8)])  # tokens at 8
        step(processor, [future(a)], meanwhile=evicting(processor, b))  # 9 to 18: b is out at 9
        step(processor, [future(a), future(b, 9)])  # 18 to 27: b is back at 19, with its token at 26
        step(processor, [future(a), future(b)], finished=[a, b])

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock)), loop)
    found = gaps(tmp_path / "a.stall")
    assert found["b", 8] == {
        "output": 1,
        "preempt": 10,
        "other:runner": 1,
        "sample": 1,
        "fwd": pytest.approx(0.5),
        "prefill": pytest.approx(4.5),
    }
    assert "preempt" not in found["a", 8]
    evictions = run.evictions
    assert (evictions.recompute.tolist(), evictions.lost_tokens.tolist()) == ([1], [8])
    assert run.steps.prefill_tokens.tolist() == [16, 0, 9, 0]


def test_an_offload_is_a_swap_and_its_copies_are_everyone_s(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        a, b = request("a"), request("b")
        for one in (a, b):
            processor.scheduler.add_waiting_request(one)
        step(processor, [future(a, 8), future(b, 8)])  # tokens at 8
        step(processor, [future(a)], meanwhile=evicting(processor, b))  # 9: copied to 11; tokens at 19
        step(processor, [future(a), future(b)])  # 20: back from 21 to 24; tokens at 31
        step(processor, [future(a), future(b)], finished=[a, b])

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock), pool=True), loop)
    found = gaps(tmp_path / "a.stall")
    assert found["a", 8]["preempt"] == 2
    assert found["a", 19]["preempt"] == 3
    assert found["b", 8]["preempt"] == 15  # from 9 to 24
    assert (run.evictions.recompute.tolist(), run.evictions.lost_tokens.tolist()) == ([0], [0])
    assert run.steps.decode_tokens.tolist() == [0, 1, 2, 2]  # nothing is computed again
    assert run.steps.prefill_tokens.tolist() == [16, 0, 0, 0]


def test_a_starved_request_is_unscheduled(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        a, b = request("a"), request("b")
        for one in (a, b):
            processor.scheduler.add_waiting_request(one)
        step(processor, [future(a, 8), future(b, 8)])
        step(processor, [future(a)])
        step(processor, [future(a), future(b)])
        step(processor, [future(a), future(b)], finished=[a, b])

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock)), loop)
    assert gaps(tmp_path / "a.stall")["b", 8]["unscheduled"] == 9
    assert run.steps.decode_tokens.tolist() == [0, 1, 2, 2]
    assert run.steps.prefill_tokens.tolist() == [16, 0, 0, 0]


def test_a_prompt_in_chunks_beside_a_decode(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        a, b = request("a"), request("b", prompt=40)
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        processor.scheduler.add_waiting_request(b)
        step(processor, [future(a), future(b, 30, new=False)])
        step(processor, [future(a), future(b, 10)])
        step(processor, [future(a), future(b)], finished=[a, b])

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock)), loop)
    assert run.steps.prefill_tokens.tolist() == [8, 30, 10, 0]
    assert run.steps.decode_tokens.tolist() == [0, 1, 1, 2]
    assert [int(n) for n in run.emissions.tokens] == [1] * 6
    assert gaps(tmp_path / "a.stall")["a", 8]["prefill"] > 4


def test_a_request_that_is_cancelled_is_done(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        a, b = request("a"), request("b")
        for one in (a, b):
            processor.scheduler.add_waiting_request(one)
        step(processor, [future(a, 8), future(b, 8)])
        processor.scheduler.set_request_cancellation("b")
        step(processor, [future(a)])
        step(processor, [future(a)], finished=[a])

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock)), loop)
    assert (run.requests.finish > 0).tolist() == [True, True]
    assert len(gaps(tmp_path / "a.stall")) == 2


def test_another_answer_to_a_prompt_has_no_arrival_of_its_own(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        a, child = request("a"), request("a__child#0", made_ms=9)
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        processor.scheduler.active_requests[child.request_id] = child
        step(processor, [future(a), future(child)])
        step(processor, [future(a), future(child)], finished=[a, child])

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock)), loop)
    assert run.requests.names == ("a", "a__child#0")
    assert int(run.emissions.tokens.sum()) == 5


def test_graphs_and_padding(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        states = [request(name) for name in "abc"]
        for one in states:
            processor.scheduler.add_waiting_request(one)
        step(processor, [future(one, 8) for one in states])  # no graph yet
        processor.inputs_and_outputs.graph = object()
        step(processor, [future(one) for one in states])
        step(processor, [future(one) for one in states], finished=states)

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock), graphs=True), loop)
    assert run.steps.graph.tolist() == [2, 1, 1]
    assert run.steps.padded.tolist() == [32, 4, 4]


def test_without_graphs_there_is_no_path_to_speak_of(tmp_path: Path, clock: Clock) -> None:
    def loop(processor: Processor) -> None:
        a = request("a")
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        step(processor, [future(a)], finished=[a])

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, IOs(clock)), loop)
    assert run.steps.graph.tolist() == [0, 0]


def test_two_batches_in_flight_on_a_device(tmp_path: Path, clock: Clock, stream: Stream) -> None:
    """Batch 2 is laid out while 1 runs; each is paired with its own tokens, and what the device hides is free."""

    def loop(processor: Processor) -> None:
        ios, runner = processor.inputs_and_outputs, processor.model_runner
        a, b = request("a"), request("b")
        for one in (a, b):
            processor.scheduler.add_waiting_request(one)

        def launch(batch: Sequence[Any]) -> None:
            assert processor.prepare_next_batch(batch)  # 2 ms
            runner.compute_batch(10)  # 1 ms here, 11 there
            ios.io_pairs[ios.current].host_io.done = stream.free
            ios.current = 1 - ios.current

        launch([future(a, 8), future(b, 8)])  # 0 to 3; device: 2 to 13
        launch([future(a), future(b)])  # 3 to 6; device: 13 to 24
        processor.update_batch()  # its tokens at 13; until 14
        launch([future(a), future(b)])  # 14 to 17; device: 24 to 35
        processor.update_batch([b])  # its tokens at 24; until 25
        launch([future(a)])  # 25 to 28
        processor.update_batch()  # at 35: b was in it, and got nothing
        ios.current = 1 - ios.current
        processor.update_batch([a])  # at 46

    run = recorded(tmp_path / "a.stall", clock, Processor(clock, AsyncIOs(clock, stream)), loop)
    found = gaps(tmp_path / "a.stall")
    assert found["a", 13] == found["b", 13] == {"fwd": 10, "sample": 1}
    assert found["a", 24] == {"fwd": 10, "sample": 1}
    assert sorted(found) == [("a", 13), ("a", 24), ("a", 35), ("b", 13)]
    assert int(run.emissions.tokens.sum()) == 6


def test_what_was_handed_out(tmp_path: Path, clock: Clock) -> None:
    seen: list[Any] = []

    def called(one: Any) -> None:
        clock.go(0.05)
        seen.append(one)

    def loop(processor: Processor) -> None:
        a, b, c = request("a"), request("b"), request("c")
        for one in (a, b, c):
            processor.scheduler.add_waiting_request(one)
        for name in "ab":
            manager.register_result_handler(name, called)
        for n in (1, 2, 3):
            last, batch = n == 3, [future(one, 8 if n == 1 else 1) for one in (a, b, c)]
            made = {name: output(name, n, last) for name in "abc"}
            step(processor, batch, [a, b, c] if last else (), [made[one] for one in ("abc" if n > 1 else "ab")])
            clock.go(1)
            manager.event_loop.run()
            manager.get_result(made["c"] if n > 1 else None)
        assert not processor.prepare_next_batch([])

    engine, kind = attached(tmp_path / "a.stall", clock)
    manager = kind(Processor(clock, IOs(clock)), loop)
    manager._run_generation_loop()
    assert engine.process.recorder is not None
    engine.process.recorder.close()
    assert engine.hooks.errors == 0
    run = sb.open(tmp_path / "a.stall")
    assert len(seen) == 6
    told = {
        name: [
            ((int(t) - START) / MS, int(n))
            for who, t, n in zip(run.deliveries.request, run.deliveries.t, run.deliveries.tokens, strict=True)
            if run.requests.names[who] == name
        ]
        for name in "abc"
    }
    assert told["a"] == told["b"] == [(10.1, 1), (20.2, 1), (30.3, 1)]
    assert told["c"] == [(20.2, 2), (30.3, 1)]


def test_a_request_that_came_over_http(tmp_path: Path, clock: Clock) -> None:
    from types import ModuleType

    from stallbook.adapters.transformers import frontend

    engine, kind = attached(tmp_path / "a.stall", clock)

    class CompletionHandler:
        def handle_request(self, body: Any, request_id: str) -> str:
            clock.go(3)  # tokenizing
            return request_id

    module: Any = ModuleType("completion")
    CompletionHandler.__module__ = module.__name__
    module.CompletionHandler = CompletionHandler
    frontend.install(module, engine.process)
    assert CompletionHandler().handle_request({}, "a") == "a"

    def loop(processor: Processor) -> None:
        a = request("a", made_ms=3)
        processor.scheduler.add_waiting_request(a)
        clock.go(2)
        step(processor, [future(a, 8)], finished=[a])

    kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
    assert engine.process.recorder is not None
    engine.process.recorder.close()
    run = sb.open(tmp_path / "a.stall")
    assert (int(run.requests.arrive[0]) - START) / MS == 0
    holds = run.holds
    assert [run.names[kind] for kind in holds.kind] == ["tokenize"]
    assert (holds.t1 - holds.t0).tolist() == [3 * MS]


def test_a_second_manager_goes_on_in_the_same_log(tmp_path: Path, clock: Clock) -> None:
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        a = request("req_0", made_ms=(clock.now - START) / MS)
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        step(processor, [future(a)], finished=[a])

    for _ in range(2):
        kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
        clock.go(50)
    assert engine.process.recorder is not None
    engine.process.recorder.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.requests.names == ("req_0", "req_0@2")
    assert len(gaps(tmp_path / "a.stall")) == 2
    assert engine.process.recorder.refused == engine.hooks.errors == 0


def test_a_manager_beside_another_is_left_alone(tmp_path: Path, clock: Clock) -> None:
    engine, kind = attached(tmp_path / "a.stall", clock)
    other = kind(Processor(clock, IOs(clock)), lambda processor: step(processor, [future(request("b"), 8)]))

    def loop(processor: Processor) -> None:
        a = request("a")
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        beside = threading.Thread(target=other._run_generation_loop)
        beside.start()
        beside.join()
        step(processor, [future(a)], finished=[a])

    kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
    assert engine.process.recorder is not None
    engine.process.recorder.close()
    assert sb.open(tmp_path / "a.stall").requests.names == ("a",)
    assert engine.hooks.errors == 0


def test_hooks_that_fail_cost_nothing_but_themselves(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    engine, kind = attached(tmp_path / "a.stall", clock)
    turns: list[int] = []

    def loop(processor: Processor) -> None:
        a = request("a")
        del a.max_new_tokens, a.created_time  # not what the hooks expect
        for turn in range(40):
            processor.scheduler.add_waiting_request(a)
            step(processor, [future(a, 8)], finished=[a])
            clock.go(300)
            turns.append(turn)

    kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
    assert len(turns) == 40
    assert not engine.hooks.on
    told = capsys.readouterr().err
    assert "a hook failed, the engine goes on" in told
    assert told.count("switched off") == 1


def test_what_the_engine_raises_passes_through(tmp_path: Path, clock: Clock) -> None:
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        raise KeyError("the engine's own")

    with pytest.raises(KeyError, match="the engine's own"):
        kind(Processor(clock, IOs(clock)), loop)._run_generation_loop()
    assert engine.hooks.errors == 0
    assert not engine.thread


def test_a_version_without_such_a_loop_is_told(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Manager, "_run_generation_loop")
    attached(tmp_path / "a.stall", clock)
    assert "not recording: transformers 0.0 has no ContinuousBatchingManager" in capsys.readouterr().err
    assert not (tmp_path / "a.stall").exists()


@pytest.mark.parametrize("padding", [0, 3])
def test_a_batch_is_told_in_full_where_it_differs(padding: int) -> None:
    states = [request(name) for name in "abc"]

    def plan(batch: Any, queries: int) -> bool:
        return batches.takes_off(batch, queries + padding, 1) is not None

    batches = Batches(lambda state: states.index(state))
    a, b, c = states
    assert plan([future(a, 8), future(b, 8)], 16)
    assert plan([future(a), future(b)], 2)
    assert not plan([future(a), future(b)], 2)
    assert plan([future(b), future(a)], 2)
    assert plan([future(b), future(a, 2)], 3)
    assert plan([future(b), future(a)], 2)
    assert plan([future(b), future(a), future(c, 8, new=False)], 10)
    assert plan([future(b), future(a), future(c, 1)], 3)
    assert not plan([future(b), future(a), future(c, 1)], 3)
    batches.tell_anew()
    assert plan([future(b), future(a), future(c, 1)], 3)
