"""One wrong call costs what it says, not the recording."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import read

import stallbook as sb
from stallbook.record import Recorder
from stallbook.run import UNKNOWN, Run

Make = Callable[..., Recorder]
Call = Callable[[Recorder, int], object]

RARE: dict[str, Call] = {
    "arrive with an id that was there": lambda rec, _: rec.arrive("a"),
    "arrive in the far future": lambda rec, _: rec.arrive("b", t=2**62),
    "arrive by the time of day": lambda rec, _: rec.arrive("b", t=1_764_000_000 * 10**9),
    "arrive with fewer than no tokens": lambda rec, _: rec.arrive("b", -9),
    "prompt of fewer than no tokens": lambda rec, a: rec.prompt(a, -9),
    "prompt of a request that never arrived": lambda rec, _: rec.prompt(77, 5),
    "evict with fewer than no tokens": lambda rec, a: rec.evict(a, lost_tokens=-9),
    "evict before the arrival": lambda rec, a: rec.evict(a, t=-5),
    "admit of a request that never arrived": lambda rec, _: rec.admit(77),
    "admit before the arrival": lambda rec, a: rec.admit(a, t=1),
    "join of a request that never arrived": lambda rec, _: rec.join(-3),
    "hold before the arrival": lambda rec, a: rec.hold(a, "kv", t=0),
    "release of a request that never arrived": lambda rec, _: rec.release(77, "kv"),
    "finish in the far future": lambda rec, a: rec.finish(a, t=2**61 + 5),
    "deliver fewer than no tokens": lambda rec, a: rec.deliver(a, -1),
    "deliver to nowhere": lambda rec, a: rec.deliver(a, 1, 7),
    "a pause that ends before it starts": lambda rec, _: rec.pause(1_050, 1_040, 0),
    "a probe of less than no time": lambda rec, _: rec.probe(-4),
    "a fact of megabytes": lambda rec, _: rec.fact("k", "x" * 2**21),
}
"""What is refused when it is called."""

AFTER: dict[str, Call] = {
    "join": lambda rec, a: rec.join(a),
    "evict": lambda rec, a: rec.evict(a),
    "readmit": lambda rec, a: rec.readmit(a),
    "admit": lambda rec, a: rec.admit(a),
    "hold": lambda rec, a: rec.hold(a, "kv"),
    "finish": lambda rec, a: rec.finish(a),
}


def steps(rec: Recorder, handle: int, n: int = 3) -> None:
    rec.join(handle)
    for _ in range(n):
        rec.begin()
        rec.enter(rec.name("decode"))
        rec.emit()
        rec.end()


def whole(log: Path) -> Run:
    """It opens, and every gap adds up."""
    run = read(log)
    found = sb.partition(run).reconcile
    assert (found.max_error_ns, found.negative_parts) == (0, 0)
    str(sb.report(run)).encode()
    return run


@pytest.mark.parametrize("what", RARE)
def test_a_wrong_call_is_refused_and_counted(recorder: Make, log: Path, what: str) -> None:
    rec = recorder()
    a = rec.arrive("a")
    steps(rec, a)
    RARE[what](rec, a)
    assert (rec.refused, rec.errors, rec.dropped) == (1, 0, 0)
    steps(rec, rec.arrive("after"))
    rec.close()
    run = whole(log)
    assert len(run.steps.id) == 6
    assert (run.facts["recorder"]["refused"], run.facts["closed"]["refused"]) == (1, 1)
    assert not run.notes.get("refused_values")
    assert "1 call refused" in " ".join(str(sb.report(run)).split())


@pytest.mark.parametrize("what", AFTER)
def test_after_its_finish_a_request_does_nothing(recorder: Make, log: Path, what: str) -> None:
    rec = recorder()
    a, b = rec.arrive("a"), rec.arrive("b")
    rec.join(a)
    steps(rec, b)
    rec.finish(a)
    AFTER[what](rec, a)
    assert (rec.refused, rec.errors) == (1, 0)
    rec.deliver(a)  # its last tokens may reach the client later
    rec.release(a, "kv")
    rec.part(a)
    assert rec.refused == 1
    steps(rec, b)
    rec.close()
    run = whole(log)
    assert run.emissions.request.tolist().count(run.requests.names.index("a")) == 3
    assert not run.notes.get("refused_values")


def test_an_id_that_comes_again_is_another_request(recorder: Make, log: Path) -> None:
    with recorder() as rec:
        handles = [rec.arrive(name) for name in ("a", "a#2", "a", "a", "b\n", "b\\u000a", "a")]
        assert handles == [*range(7)]
        assert rec.refused == 3
        for handle in handles:
            steps(rec, handle, 1)
    run = whole(log)
    assert sorted(run.requests.names) == sorted(["a", "a#2", "a#3", "a#4", "a#5", "b\\u000a", "b\\u000a#2"])
    assert run.notes["refused_values"] == 1  # the two that print alike


def test_a_stamp_of_the_time_of_day_is_no_arrival(recorder: Make, log: Path) -> None:
    with recorder() as rec:
        a = rec.arrive("a", t=1_764_000_000 * 10**9)
        rec.admit(a)
        steps(rec, a)
        rec.finish(a)
    run = whole(log)
    assert run.requests.arrive.tolist() == [UNKNOWN]
    assert run.requests.admit[0] > 0
    assert run.requests.finish[0] > run.requests.admit[0]


def step(rec: Recorder, handle: int, **end: Any) -> None:
    rec.begin()
    rec.enter(rec.name("decode"))
    rec.emit()
    rec.end(**end)


HOT: dict[str, Call] = {
    "an unknown graph": lambda rec, a: step(rec, a, graph=9),
    "a graph beyond a byte": lambda rec, a: step(rec, a, graph=999),
    "blocked by what nobody knows": lambda rec, a: step(rec, a, blocked=99),
    "padded below the batch": lambda rec, a: step(rec, a, padded=0),
    "fewer than no KV tokens": lambda rec, a: step(rec, a, kv_tokens=-7),
    "fewer than no rows": lambda rec, a: step(rec, a, decode_tokens=-7),
    "an end before the start": lambda rec, a: step(rec, a, t=5),
    "an end in the far future": lambda rec, a: step(rec, a, t=2**62),
    "a start in the past": lambda rec, _: (rec.begin(t=3), rec.emit(), rec.end()),
    "a start in the far future": lambda rec, _: (rec.begin(t=2**60), rec.emit(t=2**60), rec.end(t=2**60 + 1)),
    "an emission before its step": lambda rec, _: (rec.begin(), rec.emit(t=2), rec.end()),
    "an emission in the far future": lambda rec, _: (rec.begin(), rec.emit(t=2**59), rec.end(t=2**59)),
    "an emission beyond all numbers": lambda rec, _: (rec.begin(t=2**62), rec.emit(t=2**63 + 9), rec.end(t=2**63 + 9)),
    "a step number again": lambda rec, _: (rec.begin(step=1), rec.emit(), rec.end()),
    "a step number beyond all": lambda rec, _: (rec.begin(step=2**62), rec.emit(), rec.end()),
    "a name that was never given out": lambda rec, _: (rec.begin(), rec.enter(77), rec.emit(), rec.end()),
    "a window without a name": lambda rec, _: (rec.begin(), rec.window(77, 1_100, 1_101), rec.emit(), rec.end()),
    "a window before its step": lambda rec, _: (rec.begin(), rec.window(0, 1, 2), rec.emit(), rec.end()),
    "a window that ends before it starts": lambda rec, _: (rec.window(0, *(rec.begin(),) * 2), rec.window(0, 9, 8)),
    "segments that cross": lambda rec, _: (
        rec.begin(), rec.enter(0), rec.window(0, rec.begin() + 1, 10**9), rec.emit(), rec.end(),
    ),
    "tokens of a request that has finished": lambda rec, a: (
        rec.finish(a), rec.begin(), rec.emit_some([(a, 1)]), rec.end(),
    ),
    "tokens of a request that never arrived": lambda rec, _: (rec.begin(), rec.emit_some([(99, 1)]), rec.end()),
    "fewer than no prompt tokens": lambda rec, _: (rec.begin(), rec.prefill(-4), rec.emit(), rec.end()),
    "an emission inside a pause": lambda rec, _: (rec.begin(), rec.pause(rec.emit() - 5, 10**6, 2), rec.end()),
}  # fmt: skip
"""What only the reader can see."""


@pytest.mark.parametrize("what", HOT)
def test_a_wrong_step_costs_no_more_than_itself(recorder: Make, log: Path, what: str) -> None:
    rec = recorder()
    a = rec.arrive("a")
    steps(rec, a)
    HOT[what](rec, a)
    rec.drop()
    b = rec.arrive("b")
    steps(rec, b)
    rec.close()
    assert rec.errors == 0
    run = whole(log)
    late = [run.requests.names.index("b") == r for r in run.emissions.request]
    assert sum(late) == 3
    assert rec.refused or run.notes or len(run.steps.id) == 6


def test_what_contradicts_itself_is_counted(recorder: Make, log: Path) -> None:
    with recorder() as rec:
        a = rec.arrive("a")
        steps(rec, a)
        step(rec, a, graph=9, padded=0, kv_tokens=-7)
        step(rec, a, t=5)
    run = whole(log)
    assert (run.notes["refused_values"], run.notes["refused_steps"]) == (4, 1)  # with the segment that ends with it
    assert (run.steps.graph[3], run.steps.padded[3], run.steps.kv_tokens[3]) == (0, -1, -1)


def test_a_worker_that_outlived_its_engine(recorder: Make, log: Path) -> None:
    rec = recorder()
    steps(rec, rec.arrive("a"))
    worker = recorder(process="worker:0")
    name = worker.name("decode")
    for number in (1, 99):
        t = worker.begin(step=number)
        worker.window(name, t, t + 1, device=True)
        worker.end()
    worker.close()
    rec.close()
    assert whole(log).notes["refused_values"] >= 1


@pytest.mark.parametrize("seed", range(12))
def test_any_calls_in_any_order(recorder: Make, log: Path, seed: int) -> None:
    chance = random.Random(seed)
    calls = [*RARE.values(), *AFTER.values(), *HOT.values()]
    rec = recorder()
    handles = [rec.arrive("a")]
    for i in range(60):
        chance.choice(calls)(rec, chance.choice(handles))
        if chance.random() < 0.5:
            handles.append(rec.arrive(f"r{i}"))
            steps(rec, handles[-1], chance.randrange(3))
    rec.close()
    assert (rec.errors, rec.dropped <= 60) == (0, True)
    whole(log)


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no")


LOOP: list[Any] = []
LOOP.append(LOOP)
CONFIGS: list[Any] = [
    {(1, 2): 3}, {"a": {1, 2}}, {"a": Odd()}, {Odd(): 1}, {"a": LOOP}, {"a": b"\xff"}, {"a": "\ud800"}, {"a": 10**5000},
    {"a": float("nan")}, {None: None, 1: 2, "1": 3}, [("a", 1)], 7, "text",
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_a_config_that_json_cannot_hold(recorder: Make, log: Path, config: Any) -> None:
    with recorder(config=config) as rec:
        steps(rec, rec.arrive("a"))
        rec.fact("ok", 1)
        rec.fact(config, config)
        assert rec.errors == 0
    run = whole(log)
    assert run.facts["ok"] == 1
    json.dumps(run.facts)


@pytest.mark.parametrize(
    "told",
    [
        {"engine": None}, {"engine": 7}, {"boundary": "foo"}, {"records": ["x", 5, ""]}, {"baseline": {"fixed_ns": 1}},
        {"baseline": 5}, {"records": "segments"},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_that_no_reader_takes_is_not_written(recorder: Make, log: Path, told: dict[str, Any]) -> None:
    with recorder(**told) as rec:
        steps(rec, rec.arrive("a"))
    whole(log)
