"""What a log knows of a cause without being able to place it: told with what is known, charged to nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stallbook as sb
from cases.build import MS, Event, dec, scaled, seg, start, step
from stallbook.abilities import LONGEST_HINT, rough
from stallbook.report import report
from stallbook.run import Run
from test_partition import opened

GC_LOG = "14 collections in a debug log with durations and stamps of one second"


def a_run(folder: Path, *more: Event, records: tuple[str, ...] = ("segments",), **header: Any) -> Run:
    """Twenty steps of 10 ms, of which 2 are nobody's."""
    rows = [*start(), *(e for i in range(20) for e in a_step(i))]
    head = {"stallbook": 1, "engine": "x", "records": list(records), **header}
    return opened([head, *(scaled(e, MS) for e in [*rows, *more])], folder)


def a_step(i: int, **more: Any) -> list[Event]:
    t = 10 * i
    row, *rest = step(i + 1, t, t + 10, seg("tok", t, t + 1), dec(t + 3, t + 10), emit=t + 10)
    return [row | more, *rest]


def told(run: Run, **how: Any) -> tuple[dict[str, Any], str]:
    """The report as JSON, and as text with its lines joined."""
    drawn = report(run, **how)
    return drawn.as_dict(), " ".join(str(drawn).split())


def test_a_total_without_a_place_is_bounded_and_charged_to_nothing(tmp_path: Path) -> None:
    run = a_run(tmp_path, facts={"totals": {"gc": 1_330 * MS, "other:kv": 25 * MS}})
    data, text = told(run)
    assert (data["abilities"]["gc"], data["abilities"]["other:kv"]) == ("bounded", "bounded")
    assert data["totals_ms"] == {"gc": 1330.0, "other:kv": 25.0}
    assert data["hints"] == {}
    assert data["all"]["share"]["gc"] is None
    assert (data["all"]["share"]["tok"], data["all"]["share"]["residual"]) == (0.1, 0.2)
    assert "rough only gc bounded: 1,330 ms in all; other:kv bounded: 25.0 ms in all" in text
    assert "Known, but not when, so in other causes: gc, other:kv; see the end." in text
    assert "gc" not in text.split("Not recorded by this log: ")[1].split(".")[0].replace(",", "").split()


def test_a_hint_is_told_in_its_words(tmp_path: Path) -> None:
    run = a_run(tmp_path, facts={"hints": {"gc": GC_LOG}})
    data, text = told(run)
    assert data["abilities"]["gc"] == "hinted"
    assert data["hints"] == {"gc": GC_LOG}
    assert data["all"]["share"]["gc"] is None
    assert f"rough only gc hinted: {GC_LOG}" in text


def test_a_total_is_more_than_a_hint(tmp_path: Path) -> None:
    run = a_run(tmp_path, facts={"totals": {"gc": 5 * MS}, "hints": {"gc": GC_LOG}})
    data, text = told(run)
    assert data["abilities"]["gc"] == "bounded"
    assert f"gc bounded: 5.00 ms in all, {GC_LOG}" in text


def test_what_is_placed_is_placed_whatever_the_facts_say(tmp_path: Path) -> None:
    facts = {"totals": {"gc": 5 * MS}, "hints": {"tok": "much"}}
    data, text = told(a_run(tmp_path, records=("segments", "gc"), facts=facts))
    assert (data["abilities"]["gc"], data["abilities"]["tok"]) == ("placed", "placed")
    assert (data["totals_ms"], data["hints"]) == ({}, {})
    assert data["all"]["share"]["gc"] == 0
    assert "rough only" not in text


@pytest.mark.parametrize(("count", "words"), [(0, "the engine counted 0"), (12, "the engine counted 12")])
def test_a_count_of_preemptions_is_a_hint(tmp_path: Path, count: int, words: str) -> None:
    data, text = told(a_run(tmp_path, preemptions=count))
    assert data["abilities"]["preempt"] == "hinted"
    assert f"preempt hinted: {words}" in text
    data, _ = told(a_run(tmp_path, records=("segments", "evictions"), preemptions=count))
    assert data["abilities"]["preempt"] == "placed"


def test_cpu_time_is_a_hint_at_the_system(tmp_path: Path) -> None:
    more = a_step(20, cpu_ns=8 * MS)
    data, text = told(a_run(tmp_path, *more))
    assert data["abilities"]["os"] == "hinted"
    assert "os hinted: the engine's thread was off the CPU for 2 ms of its steps, waiting included" in text
    assert "no OS counters" in text


def test_a_delay_of_a_step_is_bounded_and_placed_all_the_same(tmp_path: Path) -> None:
    more = a_step(20, run_delay_ns=5)
    data, text = told(a_run(tmp_path, *more))
    assert data["abilities"]["os"] == "bounded"
    assert data["all"]["share"]["os"] > 0
    assert "rough only os bounded" in text
    assert "Known, but not when" not in text


def test_entries_that_mean_nothing_are_counted(tmp_path: Path) -> None:
    totals = {"gc": -1, "tok": 1.5, "os": True, "nonsense": 4, "other:": 4, "queue": 7}
    run = a_run(tmp_path, facts={"totals": totals, "hints": {"gc": "", "preempt": 3}})
    assert (rough(run).totals, rough(run).hints, rough(run).ignored) == ({"queue": 7}, {}, 7)
    assert sb.partition(run).notes["ignored_totals_and_hints"] == 7
    assert "ignored totals and hints: 7" in told(run)[1]
    assert rough(a_run(tmp_path, facts={"totals": [1], "hints": "gc"})).ignored == 2


def test_the_post_tells_of_its_own_causes_alone(tmp_path: Path) -> None:
    run = a_run(tmp_path, facts={"totals": {"gc": MS, "os": MS, "other:kv": MS}})
    data, _ = told(run, rules="post")
    assert data["abilities"]["gc"] == "bounded"
    assert set(data["abilities"]) == {"prefill", "preempt", "graph", "gc", "tok", "fwd", "residual"}
    assert data["totals_ms"] == {"gc": 1.0}


@pytest.mark.parametrize("name", ["again.jsonl", "again.stall"])
def test_what_is_known_survives_a_conversion(tmp_path: Path, name: str) -> None:
    facts = {"totals": {"gc": 1_330 * MS}, "hints": {"preempt": "none in any ten-second line"}}
    sb.write(a_run(tmp_path, facts=facts), tmp_path / name)
    data, text = told(sb.open(tmp_path / name))
    assert data["totals_ms"] == {"gc": 1330.0}
    assert "preempt hinted: none in any ten-second line" in text


def test_a_total_beyond_all_clocks_is_none_and_long_words_are_cut(tmp_path: Path) -> None:
    run = a_run(tmp_path, facts={"totals": {"gc": 10**30}, "hints": {"os": "x" * 5000}})
    known = rough(run)
    assert (known.totals, known.ignored) == ({}, 1)
    assert len(known.hints["os"]) == LONGEST_HINT


def test_hostile_words_do_not_reach_the_terminal(tmp_path: Path) -> None:
    run = a_run(tmp_path, facts={"hints": {"gc": "a\x1b[31mb\nc", "other:\x07": "d"}})
    text = str(report(run))
    assert "\x1b" not in text
    assert "\x07" not in text
    json.dumps(report(run).as_dict())


def test_a_delay_of_zero_is_a_delay_that_was_recorded(tmp_path: Path) -> None:
    more = [e for i in range(20, 24) for e in a_step(i, run_delay_ns=0)]
    data, text = told(a_run(tmp_path, *more))
    assert data["abilities"]["os"] == "placed"
    assert data["all"]["share"].get("os", 0) == 0
    assert "no OS counters" not in text


def test_a_swap_is_preemption_on_record_without_an_eviction(tmp_path: Path) -> None:
    row, *rest = step(21, 200, 210, seg("swap", 200, 206), dec(207, 210), emit=210)
    data, text = told(a_run(tmp_path, row, *rest))
    assert data["abilities"]["preempt"] == "placed"
    assert data["all"]["share"]["preempt"] > 0
    assert "preempt" not in text.split("Not recorded by this log:")[1].split(".")[0]


@pytest.mark.parametrize(
    "given", [{"fixed_ns": 1e6, "row_ns": 1e5, "kv_token_ns": 10}, {"fixed_ns": -1e9, "row_ns": 1}], ids=["kv", "zero"]
)
def test_steps_without_a_baseline_are_said_and_charge_nothing_by_guess(tmp_path: Path, given: dict[str, float]) -> None:
    data, text = told(a_run(tmp_path, *a_step(20, graph="eager"), records=("segments", "graph"), baseline=given))
    assert {data["abilities"][c] for c in ("graph", "slow", "pad")} == {"not recorded"}
    assert data["tail"]["share"]["graph"] is None
    assert "none for 21 steps: no guess there" in text


def test_a_worker_is_one_with_a_number(tmp_path: Path) -> None:
    pause = {"e": "gc", "t0": 183 * MS, "t1": 186 * MS, "generation": 2}
    shares = []
    for process in ("worker:3", "worker:abc", "api"):
        run = opened_with(tmp_path, pause | {"process": process})
        shares.append(report(run).as_dict()["all"]["share"]["gc"])
        assert run.notes.get("off_path_pauses", 0) == (process != "worker:3")
    assert shares[0] > 0
    assert shares[1:] == [0, 0]


def opened_with(folder: Path, event: Event) -> Run:
    rows = [*start(), *(e for i in range(20) for e in a_step(i))]
    head = {"stallbook": 1, "engine": "x", "records": ["segments", "gc"]}
    return opened([head, *(scaled(e, MS) for e in rows), event], folder)
