"""Tokens that callbacks are handed, a step's at a time, against what each callback itself was called with."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from fake_transformers import IOs, Manager, OutputRouter, Processor, attached, future, output, request
from fakes import START, Clock

import stallbook as sb
from stallbook.adapters.hooks import Hooks
from stallbook.adapters.transformers.routed import Loop, Routed
from stallbook.notes.transformers import HANDED

pytestmark = pytest.mark.usefixtures("unhooked")
Told = dict[str, list[tuple[float, int]]]


class Served:
    """A server's requests, some with callbacks, on a loop that the test steps. got: what callbacks were called with."""

    def __init__(self, manager: Manager, processor: Processor, clock: Clock) -> None:
        self.manager, self.processor, self.clock = manager, processor, clock
        self.states: dict[str, Any] = {}
        self.lengths: dict[str, int] = {}
        self.called: list[tuple[str, int]] = []
        self.got: Told = defaultdict(list)
        self.raises: set[str] = set()

    def ask(self, name: str, streaming: bool = True, callback: bool = True, late: bool = False) -> None:
        state = self.states[name] = request(name, streaming=streaming)
        self.lengths[name] = 0
        if callback and not late:
            self.register(name)
        self.processor.scheduler.add_waiting_request(state)
        if callback and late:
            self.register(name)

    def register(self, name: str) -> None:
        seen = 0

        def callback(one: Any) -> None:
            nonlocal seen
            if name in self.raises:
                raise ZeroDivisionError
            self.clock.go(0.25)
            self.called.append((name, len(one.generated_tokens) - seen))
            seen = len(one.generated_tokens)

        self.manager.register_result_handler(name, callback)

    def step(self, names: str | list[str], ends: str | list[str] = "") -> None:
        batch = [future(self.states[name], 1 if self.lengths[name] else 8) for name in names]
        assert self.processor.prepare_next_batch(batch)
        self.processor.model_runner.compute_batch()
        outputs = []
        for name in names:
            self.lengths[name] += 1
            if self.states[name].streaming or name in ends:
                outputs.append(output(name, self.lengths[name], name in ends))
        self.processor.update_batch([self.states[name] for name in ends], outputs)

    def hand_out(self) -> None:
        """The event loop runs: a step's tokens are told as of when the last of them was handed out."""
        loop = self.manager.event_loop
        sent, loop.sent = loop.sent, []
        for one in sent:
            loop.sent = [one]
            loop.run()
            for name, tokens in self.called:
                if tokens:
                    self.got[name].append(((self.clock.now - START) / 1e6, tokens))
            self.called.clear()


def served(path: Path, clock: Clock, does: Callable[[Served], None]) -> tuple[Told, Told]:
    """What callbacks got, and what the log says."""
    found: list[Served] = []

    def loop(processor: Processor) -> None:
        found.append(Served(manager, processor, clock))
        does(found[0])
        found[0].hand_out()
        assert not processor.prepare_next_batch([])

    engine, kind = attached(path, clock)
    manager = kind(Processor(clock, IOs(clock)), loop)
    manager._run_generation_loop()
    assert engine.process.recorder is not None
    engine.process.recorder.close()
    assert engine.hooks.errors == 0, engine.hooks.last
    run = sb.open(path)
    told: Told = defaultdict(list)
    for who, t, tokens in zip(run.deliveries.request, run.deliveries.t, run.deliveries.tokens, strict=True):
        told[run.requests.names[who]].append(((int(t) - START) / 1e6, int(tokens)))
    return found[0].got, told


def test_streams_and_one_that_waits_for_all(tmp_path: Path, clock: Clock) -> None:
    def does(server: Served) -> None:
        server.ask("a")
        server.ask("b", late=True)
        server.ask("w", streaming=False)
        for _ in range(3):
            server.step("abw")
            server.hand_out()
        server.step("aw", ends="w")
        server.step("ab", ends="ab")
        server.hand_out()

    got, told = served(tmp_path / "a.stall", clock, does)
    assert told == got
    assert [tokens for _, tokens in told["w"]] == [4]
    assert [tokens for _, tokens in told["a"]] == [1] * 5


def test_what_has_no_callback_is_not_handed_out_so(tmp_path: Path, clock: Clock) -> None:
    def does(server: Served) -> None:
        server.ask("a")
        server.ask("q", callback=False)
        server.step("aq")
        server.hand_out()
        server.step("q")
        server.step("aq", ends="aq")

    got, told = served(tmp_path / "a.stall", clock, does)
    assert told == got
    assert sorted(told) == ["a"]


def test_a_callback_that_raises_costs_its_step_alone(tmp_path: Path, clock: Clock) -> None:
    def does(server: Served) -> None:
        server.ask("a")
        server.ask("b")
        for raises in ("", "a", ""):
            server.raises = set(raises)
            server.step("ab")
            server.hand_out()

    got, told = served(tmp_path / "a.stall", clock, does)
    assert told == got
    assert [tokens for _, tokens in told["b"]] == [1, 2]


def test_a_request_that_fails_is_handed_what_it_is_owed(tmp_path: Path, clock: Clock) -> None:
    def does(server: Served) -> None:
        server.ask("a")
        server.ask("w", streaming=False)
        for _ in range(2):
            server.step("aw")
            server.hand_out()
        for name in "aw":
            server.processor.output_router.deliver(output(name, 2, finished=True))
            server.processor.scheduler.finish_request(name)
            server.hand_out()

    got, told = served(tmp_path / "a.stall", clock, does)
    assert told == got
    assert [tokens for _, tokens in told["w"]] == [2]


def test_a_request_that_is_cancelled_and_one_of_its_name(tmp_path: Path, clock: Clock) -> None:
    def does(server: Served) -> None:
        server.ask("a")
        server.ask("w", streaming=False)
        server.step("aw")
        for name in "aw":
            server.processor.scheduler.set_request_cancellation(name)
        server.clock.go(1)
        assert not server.processor.prepare_next_batch([])
        server.hand_out()
        server.ask("a")
        server.step("a")
        server.step("a", ends="a")

    got, told = served(tmp_path / "a.stall", clock, does)
    assert told["a"] + told["a#2"] == got["a"]
    assert [tokens for _, tokens in got["a"]] == [1, 1, 1]
    assert sorted(told) == ["a", "a#2"]


def test_another_router_goes_its_own_way() -> None:
    routed, router, other = Routed(lambda: 5, deque()), OutputRouter(), OutputRouter()
    sent: list[tuple[Any, ...]] = []
    loop = SimpleNamespace(call_soon_threadsafe=lambda *args: sent.append(args), time=lambda: 4.5)
    engine: Any = SimpleNamespace(hooks=Hooks(), emission=(3, 7, ()), handles={})
    routed.begins(engine, router)
    Loop(loop, other, routed).call_soon_threadsafe(print, "x")
    Loop(loop, router, routed).call_soon_threadsafe(list)
    engine.emission = None
    Loop(loop, router, routed).call_soon_threadsafe(list)
    assert [one[0] in (print, list) for one in sent] == [True, False, True]
    assert not routed.waits
    sent[1][0](*sent[1][1:])
    assert routed.waits
    assert routed.noted() == [HANDED, 5, 7]
    assert Loop(loop, other, routed).time() == 4.5


def test_what_fails_there_the_engine_does_not_see(capsys: pytest.CaptureFixture[str]) -> None:
    routed, router, sent = Routed(lambda: 5, deque()), OutputRouter(), list[Any]()
    engine: Any = SimpleNamespace(hooks=Hooks(), handles={})
    routed.begins(engine, router)
    loop = SimpleNamespace(call_soon_threadsafe=lambda *args: sent.append(args))
    Loop(loop, router, routed).call_soon_threadsafe(list)
    assert sent == [(list,)]
    assert engine.hooks.errors == 1
    assert "a hook failed" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(20))
def test_every_token_once(tmp_path: Path, clock: Clock, seed: int) -> None:
    random = Random(seed)

    def does(server: Served) -> None:
        alive: list[str] = []
        for n in range(150):
            if len(alive) < 5 and random.random() < 0.2:
                name = f"r{n}"
                alive.append(name)
                server.ask(name, random.random() < 0.7, random.random() < 0.8, random.random() < 0.5)
            who = [name for name in alive if random.random() < 0.9]
            ends = [name for name in who if random.random() < 0.05]
            if who:
                server.step(who, ends)
            alive = [name for name in alive if name not in ends]
            if random.random() < 0.6:
                server.hand_out()

    got, told = served(tmp_path / "a.stall", clock, does)
    assert told == got
