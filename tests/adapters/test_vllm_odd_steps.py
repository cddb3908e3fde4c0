"""Steps as a scheduler seldom makes them: evicted twice before a flush, failed, out of order, without tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import Output, Worker, core, process, request
from fakes import Clock

import stallbook as sb
from stallbook.adapters.vllm.engine import Engine
from stallbook.notes import vllm
from stallbook.notes.words import STAMPS
from stallbook.run import Run

A, AB = {"a": 1}, {"a": 1, "b": 1}
NEVER = 1 << 62


class Life:
    """An engine core and what it records, step by step."""

    def __init__(self, folder: Path, clock: Clock, utils: Any) -> None:
        self.folder, self.clock = folder, clock
        self.ours, the_core = process(folder, clock), core(clock, Worker(clock, utils))
        self.hooked, self.scheduler = Engine(the_core, self.ours), the_core.scheduler
        self.requests = {name: request(name) for name in "abc"}

    def arrive(self, names: str) -> None:
        for name in names:
            self.scheduler.add_request(self.requests[name])

    def schedule(
        self,
        scheduled: Mapping[str, int],
        new: Collection[str] = (),
        resumed: Collection[str] = (),
        done: Collection[str] = (),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Output:
        """One step; those that come in are given 8 tokens."""
        counts = {name: 8 if name in (*new, *resumed) else n for name, n in scheduled.items()}
        output = Output(counts, new=tuple(new), resumed=tuple(resumed), finished_req_ids=set(done))
        self.scheduler.schedule(output, meanwhile=meanwhile)
        self.clock.go(5)
        return output

    def emit(self, output: Output, tokens: Mapping[str, int]) -> None:
        self.scheduler.update_from_output(output, tokens)

    def step(self, tokens: Mapping[str, int], **more: Any) -> None:
        self.emit(self.schedule(tokens, **more), tokens)

    def evict(self, name: str) -> None:
        self.scheduler._preempt_request(self.requests[name], 0.0)

    def flush(self) -> None:
        self.hooked.later.flush()

    def fails(self) -> None:
        """What waits cannot be written."""
        self.hooked.note(("no number",))
        self.flush()

    def end(self, errors: int = 0, untold: int = 0) -> Run:
        self.flush()
        assert self.ours.hooks.errors == errors, self.ours.hooks.last
        assert self.ours.recorder is not None
        self.ours.recorder.close()
        run = sb.open(self.folder)
        assert run.notes.get("untold_notes", 0) == untold
        return run


@pytest.fixture
def life(tmp_path: Path, clock: Clock, utils: object) -> Life:
    """Two requests that decode."""
    life = Life(tmp_path / "a.stall", clock, utils)
    life.arrive("ab")
    life.step(AB, new="ab")
    return life


def got(run: Run) -> dict[str, int]:
    """Tokens of each request."""
    tokens: Counter[str] = Counter()
    for who, n in zip(run.emissions.request, run.emissions.tokens, strict=True):
        tokens[run.requests.names[int(who)]] += int(n)
    return dict(tokens)


@pytest.mark.parametrize("as_new", [False, True], ids=["resumed", "resumed as new"])
@pytest.mark.parametrize("flushes", range(4), ids=["last alone", "between", "before", "never"])
def test_every_eviction_has_its_return(life: Life, as_new: bool, flushes: int) -> None:
    """However many of them one flush tells. A runner may count those that come back as new ones."""
    back: dict[str, Any] = {"new" if as_new else "resumed": "b"}
    for again in range(2):
        life.step(A, meanwhile=lambda: life.evict("b"))
        if flushes == 1 or (flushes == 0 and again):
            life.flush()
        life.step(AB, **back)
        if flushes == 2 and not again:
            life.flush()
    life.step(AB)
    evictions = life.end().evictions
    assert len(evictions.t1) == 2
    assert (evictions.t1 < NEVER).all()


@pytest.fixture(params=[-1, STAMPS, vllm.FINISHED, vllm.EMITTED, vllm.SCHEDULED])
def failing(request: pytest.FixtureRequest, life: Life, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The notes of the second flush are lost: they cannot be written, or that part of the telling fails."""
    if request.param < 0:
        return {"errors": 1, "untold": 1}
    tell, flushes = vllm.Teller.tell, 0

    def telling(self: vllm.Teller, *told: Any) -> Any:
        nonlocal flushes
        flushes += 1
        whole = self.kinds.copy()
        if flushes == 2:
            self.kinds[request.param] = whole[request.param][0], lambda *_: 1 / 0
        try:
            return tell(self, *told)
        finally:
            self.kinds = whole

    monkeypatch.setattr(vllm.Teller, "tell", telling)
    return {"untold": 1}


def test_after_a_failure_nobody_is_taken_to_decode_on(life: Life, failing: dict[str, int]) -> None:
    """What was kept is lost, and with it that one left: what comes next is told anew."""
    life.step(AB)
    life.flush()
    life.step(A, done="b")
    (life.fails if "errors" in failing else life.flush)()
    for _ in range(3):
        life.step(A)
    found = got(life.end(**failing))
    assert found == {"a": 5, "b": 2}  # without the token of the step that was lost


def test_a_failure_with_the_next_step_scheduled(life: Life, failing: dict[str, int]) -> None:
    """Two in flight: the one that was told of the end is lost, and the next repeats it."""
    life.step(AB)
    life.flush()
    flying = [life.schedule(A, done="b")]
    for again in range(4):
        flying.append(life.schedule(A))
        life.emit(flying.pop(0), A)
        if not again:
            (life.fails if "errors" in failing else life.flush)()
    life.emit(flying.pop(0), A)
    assert got(life.end(**failing))["b"] == 2


def test_a_step_without_tokens_gives_none(life: Life) -> None:
    """An output that carries none, say of a load of KV that failed."""
    life.arrive("c")
    life.step({"a": 1, "b": 1, "c": 0}, new="c")
    for _ in range(2):
        life.step({"a": 1, "b": 1, "c": 1})
    assert got(life.end()) == {"a": 4, "b": 4, "c": 2}


def test_steps_that_emit_out_of_order(life: Life) -> None:
    first, second = life.schedule(AB), life.schedule(A)
    life.emit(second, A)
    life.emit(first, AB)
    life.step(AB)
    assert got(life.end()) == {"a": 3, "b": 2}  # a step that a later one has overtaken is not taken to have emitted


def test_one_sits_out_across_flushes(life: Life) -> None:
    for tokens in (AB, A, AB):
        output = life.schedule(tokens)
        life.flush()
        life.emit(output, tokens)
    assert got(life.end()) == {"a": 4, "b": 3}


def test_an_id_told_before_its_end_hides_nobody_else_s(life: Life) -> None:
    """c leaves in the step in which b's name comes again before anybody told that b was done."""
    life.arrive("c")
    life.step({"a": 1, "b": 1, "c": 1}, new="c")
    life.step({"a": 1, "b": 1, "c": 1})
    life.arrive("b")
    life.step(AB, new="b", done="bc")
    for _ in range(4):
        life.step(AB)
    found = got(life.end())
    assert (found["a"], found["c"]) == (8, 2)
