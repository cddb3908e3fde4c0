"""TTFT and the gaps beyond the engine, held against the slow partition."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stallbook as sb
from randomlog import KINDS, random_log
from slow_edges import deliveries, first_tokens
from stallbook import waits
from stallbook.run import ExplicitBaseline, Run
from test_partition import GOLDEN, STAND_IN, opened

SCENARIO = Path(__file__).parent / "data" / "scenarios" / "X16.jsonl"
SEEDS = 60


def told(run: Run, w: waits.Waits) -> dict[tuple[str, int, int], dict[str, int]]:
    """Parts of each wait by its request and window, after checking that they add up."""
    assert (w.parts.sum(axis=1) == w.t1 - w.t0).all()
    assert (w.parts >= 0).all()
    rows = zip(w.request, w.t0.tolist(), w.t1.tolist(), w.parts.tolist(), strict=True)
    return {
        (run.requests.names[r], t0, t1): {c: v for c, v in zip(w.causes, parts, strict=True) if v}
        for r, t0, t1, parts in rows
    }


def agree(fast: dict[str, int], slow: dict[str, int]) -> bool:
    return all(abs(fast.get(c, 0) - slow.get(c, 0)) <= 2 for c in fast.keys() | slow.keys())


@pytest.mark.parametrize("kind", KINDS)
def test_random_logs(kind: str, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        events: list[dict[str, Any]] = random_log(random.Random(f"{kind} {seed}"), kind)
        explicit = events[0].get("baseline") or STAND_IN
        run = opened(events, tmp_path)
        p = sb.partition(run, baseline=ExplicitBaseline(**explicit))
        fast = told(run, waits.first_tokens(p))
        slow = {(w.request, w.t0, w.t1): w.parts for w in first_tokens(events, explicit)}
        assert fast.keys() == slow.keys(), f"{kind} {seed}"
        assert all(agree(fast[k], slow[k]) for k in slow), f"{kind} {seed}"
        for boundary in waits.BOUNDARIES:
            fast = told(run, waits.boundary_gaps(p, boundary))
            gaps = deliveries(events, explicit).get(boundary, [])
            slow = {(g.request, g.t0, g.t1): g.parts for g in gaps}
            assert fast.keys() == slow.keys(), f"{kind} {seed} {boundary}"
            assert all(agree(fast[k], slow[k]) for k in slow), f"{kind} {seed} {boundary}"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_first_token_of_a_recorded_run(path: Path) -> None:
    run = sb.open(path)
    w = waits.first_tokens(sb.partition(run))
    assert len(w.request) == len(run.requests.names) > 100
    assert len(told(run, w)) == len(w.request)


def test_an_empty_first_chunk_is_no_gap() -> None:
    run, want = sb.open(SCENARIO), json.loads(SCENARIO.with_suffix(".expected.json").read_text())
    p = sb.partition(run)
    (parts,) = told(run, waits.first_tokens(p)).values()
    assert parts == want["ttft"][0]["parts_ns"]
    (parts,) = told(run, waits.boundary_gaps(p, "client")).values()
    assert parts == want["deliveries"]["client"][0]["parts_ns"]
    assert len(waits.boundary_gaps(p, "frontend").t0) == 0


def test_a_request_that_was_never_admitted_has_no_queue(tmp_path: Path) -> None:
    events = [json.loads(line) for line in SCENARIO.read_text().splitlines()]
    run = opened([e for e in events if e.get("e") != "admit"], tmp_path)
    w = waits.first_tokens(sb.partition(run))
    assert w.never_admitted == 1
    assert "queue" not in w.causes
    assert np.array_equal(w.parts.sum(axis=1), w.t1 - w.t0)


def test_away_before_admission_is_never_unscheduled(tmp_path: Path) -> None:
    """The interval in which a request is admitted began while it was held: it is judged as a whole (rule 3)."""
    b, both = {"b": 1}, {"a": 1, "b": 1}
    steps = [
        {"e": "step", "id": i, "t0": t0, "t1": t1, "decode_tokens": len(m), "members": sorted(m)}
        for i, (t0, t1, m) in enumerate([(0, 3, b), (3, 12, b), (12, 20, both)])
    ]
    emits = [{"e": "emit", "step": i, "t": t, "tokens": m} for i, (t, m) in enumerate([(3, b), (12, b), (20, both)])]
    held = {"e": "hold", "request": "a", "kind": "kv", "t0": 5, "t1": 8}
    way_in = [{"e": "arrive", "request": "a", "t": 0}, {"e": "admit", "request": "a", "t": 10}]
    head = {"stallbook": 1, "engine": "x", "records": ["members", "holds"]}
    events = [head, *way_in, held, *steps, *emits]
    run = opened(events, tmp_path)
    assert told(run, waits.first_tokens(sb.partition(run))) == {("a", 0, 20): {"queue": 10, "residual": 10}}
    assert [w.parts for w in first_tokens(events)] == [{"queue": 10, "residual": 10}]


def test_what_blocked_admission(tmp_path: Path) -> None:
    def step(i: int, t0: int, blocked: str | None) -> dict[str, Any]:
        return {"e": "step", "id": i, "t0": t0, "t1": t0 + 9, "decode_tokens": 1} | (
            {"blocked": blocked} if blocked else {}
        )

    events: list[dict[str, Any]] = [
        {"stallbook": 1, "engine": "x"},
        {"e": "arrive", "request": "a", "t": 5},
        {"e": "arrive", "request": "b", "t": 22},
        step(0, 10, "kv"), step(1, 20, "seqs"), step(2, 30, "none"), step(3, 40, None),
        {"e": "admit", "request": "a", "t": 33},
        {"e": "admit", "request": "b", "t": 41},
        {"e": "emit", "step": 3, "t": 48, "tokens": {"a": 1, "b": 1}},
    ]  # fmt: skip
    # a waits over [5, 33): 5 before any step, 10 for blocks, 10 for a place, 3 for nothing told.
    # b waits over [22, 41): 8 for a place, then 11 for nothing told.
    blocked = waits.blocked_by(opened(events, tmp_path))
    assert blocked is not None
    assert dict(zip(waits.BLOCKERS, blocked.tolist(), strict=True)) == {
        "nothing on record": 19, "KV blocks": 10, "the limit of sequences": 18, "the token budget": 0,
    }  # fmt: skip
    told = [e | {"blocked": "none"} if e.get("e") == "step" else e for e in events]
    assert waits.blocked_by(opened(told, tmp_path)) is not None
    for e in told:
        e.pop("blocked", None)
    assert waits.blocked_by(opened(told, tmp_path)) is None


def test_holds_before_admission_explain_the_queue(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"stallbook": 1, "engine": "x"},
        {"e": "arrive", "request": "a", "t": 100},
        {"e": "hold", "request": "a", "kind": "tokenize", "t0": 100, "t1": 130},
        {"e": "hold", "request": "a", "kind": "handoff", "t0": 130, "t1": 190},
        {"e": "admit", "request": "a", "t": 150},
        {"e": "arrive", "request": "never", "t": 100},
        {"e": "hold", "request": "never", "kind": "grammar", "t0": 110, "t1": 120},
        {"e": "step", "id": 0, "t0": 160, "t1": 300, "decode_tokens": 1},
        {"e": "emit", "step": 0, "t": 290, "tokens": {"a": 1}},
    ]
    assert waits.held_by(opened(events, tmp_path)) == (50, {"tokenize": 30, "handoff": 20})
    assert waits.held_by(opened(events[:1], tmp_path)) == (0, {})


def test_an_admission_before_the_clocks_zero_is_one(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"stallbook": 1, "engine": "x"},
        {"e": "arrive", "request": "a", "t": -50},
        {"e": "admit", "request": "a", "t": -20},
        {"e": "step", "id": 0, "t0": -20, "t1": -5, "decode_tokens": 1},
        {"e": "emit", "step": 0, "t": -6, "tokens": {"a": 1}},
    ]
    p = sb.partition(opened(events, tmp_path))
    assert p.abilities["queue"] == "placed"
    assert told(p.run, waits.first_tokens(p)) == {("a", -50, -6): {"queue": 30, "residual": 14}}


def test_own_tokenizing_is_charged_whole_but_not_what_ran_inside_it(tmp_path: Path) -> None:
    """Of two segments with run-queue delay, one nested in the request's own `tok`, only the tok's delay is `tok`."""
    events = [
        {"stallbook": 1, "engine": "x", "records": ["segments", "os"]},
        {"e": "arrive", "request": "a", "t": 0},
        {"e": "admit", "request": "a", "t": 10},
        {"e": "step", "id": 1, "t0": 0, "t1": 300},
        {"e": "segment", "step": 1, "name": "tok", "t0": 20, "t1": 120, "run_delay_ns": 10, "request": "a"},
        {"e": "segment", "step": 1, "name": "sched", "t0": 40, "t1": 60, "run_delay_ns": 20},
        {"e": "emit", "step": 1, "t": 300, "tokens": {"a": 1}},
    ]
    run = opened(events, tmp_path)
    right = {"queue": 10, "tok": 80, "os": 20, "residual": 190}
    assert told(run, waits.first_tokens(sb.partition(run))) == {("a", 0, 300): right}
    assert [w.parts for w in first_tokens(events)] == [right]
