"""Names that come again: another request of it is not the one before, and is told its own tokens."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_transformers import IOs, Processor, attached, future, output, request
from fakes import Clock
from test_transformers_lives import closed, step, told

from stallbook.adapters.transformers import frontend

pytestmark = pytest.mark.usefixtures("unhooked")


def test_the_next_manager_s_of_its_name_is_another_one(tmp_path: Path, clock: Clock) -> None:
    """Nobody takes all of the first one's answer before its manager ends."""
    engine, kind = attached(tmp_path / "a.stall", clock)

    takes = deque([(1, 2, 3), (1, 2), (5,)])

    def loop(processor: Processor) -> None:
        a = request("req_0")
        processor.scheduler.add_waiting_request(a)
        for n in range(5):
            step(processor, [future(a, 1 if n else 8)], (a,) if n == 4 else ())
        for n in takes.popleft():
            manager.get_result(output("req_0", n, n == 5))

    while takes:
        manager = kind(Processor(clock, IOs(clock)), loop)
        manager._run_generation_loop()
        clock.go(5)
    run = closed(engine, tmp_path / "a.stall")
    assert {name: sum(tokens) for name, tokens in told(run).items()} == {"req_0": 3, "req_0@2": 2, "req_0@3": 5}


def test_one_that_comes_while_the_last_of_its_name_is_in_flight(tmp_path: Path, clock: Clock) -> None:
    """The last one was cancelled, and its batch had not come back: it is over, and nobody looks for it any more."""
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        a, b, again = request("a"), request("b"), request("a")
        for one in (a, b):
            processor.scheduler.add_waiting_request(one)
        step(processor, [future(a, 8), future(b, 8)])
        manager.get_result(output("a", 1))
        for _ in range(2):
            processor.scheduler.set_request_cancellation("a")
        processor.scheduler.add_waiting_request(again)
        assert not engine.news
        assert len(engine.process.recorder._live) == 2  # type: ignore[union-attr]
        processor.scheduler.cancelled = []  # they are of the last batch
        step(processor, [future(again, 8), future(b)])
        manager.get_result(output("a", 1))
        step(processor, [future(again), future(b)], (again, b))
        manager.get_result(output("a", 2, True))

    manager = kind(Processor(clock, IOs(clock)), loop)
    manager._run_generation_loop()
    run = closed(engine, tmp_path / "a.stall")
    assert told(run) == {"a": [1], "a#2": [1, 1]}
    assert (run.requests.finish > 0).all()


def test_who_is_never_taken_from_the_queue_is_forgotten(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontend, "_REMEMBERED", 2)
    engine, kind = attached(tmp_path / "a.stall", clock)

    def loop(processor: Processor) -> None:
        for name in "abcdefg":
            one = request(name)
            processor.scheduler.add_waiting_request(one)
            step(processor, [future(one, 8)])
            manager.get_result(output(name, 1))
            step(processor, [future(one)], (one,))

    manager = kind(Processor(clock, IOs(clock)), loop)
    manager._run_generation_loop()
    closed(engine, tmp_path / "a.stall")
    assert sorted(engine.frontend.so_far) == ["f", "g"]


def test_one_that_comes_as_the_last_output_of_its_name_is_taken(tmp_path: Path, clock: Clock) -> None:
    """Its count is dropped on one thread while it is looked at on the other."""
    engine, kind = attached(tmp_path / "a.stall", clock)

    def is_finished() -> bool:
        engine.frontend.so_far.clear()
        return True

    manager = kind(Processor(clock, IOs(clock)), lambda _: None)
    manager._run_generation_loop()
    last = SimpleNamespace(request_id="a", generated_tokens=[7], is_finished=is_finished)
    assert manager.get_result(last) is last
    closed(engine, tmp_path / "a.stall")
