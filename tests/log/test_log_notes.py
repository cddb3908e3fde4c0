"""What is merged, joined, dropped or only counted on the way in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logfiles import HEADER, emit, gc, hold, load, of, segment, step

from stallbook.run import NEVER, UNKNOWN

S0 = step(0, 0, 10)
S1 = step(1, 10, 20)

NOTES: dict[str, tuple[dict[str, int], list[Any]]] = {
    "pauses overlap": ({"merged_pauses": 1}, [gc(0, 5), gc(4, 9)]),
    "pauses nest, in three": ({"merged_pauses": 2}, [gc(0, 9), gc(1, 2), gc(8, 12)]),
    "pauses touch": ({}, [gc(0, 5), gc(5, 9)]),
    "pauses of two processes": ({}, [gc(0, 5), gc(4, 9, process="worker:1")]),
    "pause off the path": ({"off_path_pauses": 2}, [gc(0, 5, process="api"), gc(0, 5, process="workers")]),
    "eviction told twice": ({"merged_evictions": 1}, [of("evict", 1), of("evict", 2), of("readmit", 5)]),
    "evictions touch": ({}, [of("evict", 1), of("readmit", 5), of("evict", 5), of("readmit", 8)]),
    "evictions of two requests": ({}, [of("evict", 1), of("evict", 2, "r2"), of("readmit", 5)]),
    "readmission alone": ({"stray_readmits": 1}, [of("readmit", 5)]),
    "readmission told twice": ({"stray_readmits": 1}, [of("evict", 1), of("readmit", 5), of("readmit", 6)]),
    "readmission before the eviction": ({"stray_readmits": 1}, [of("evict", 6), of("readmit", 5)]),
    "holds overlap": ({"merged_holds": 1}, [hold(0, 5), hold(4, 9)]),
    "holds touch": ({}, [hold(0, 5), hold(5, 9)]),
    "holds of two kinds": ({}, [hold(0, 5), hold(4, 9, "lora")]),
    "a hold without end takes in the rest": ({"merged_holds": 1}, [hold(0, None), hold(4, 9)]),
    "emission in an eviction": (
        {"emissions_in_eviction": 1}, [S0, S1, emit(0, 5), emit(1, 12), of("evict", 5), of("readmit", 13)],
    ),
    "emissions at an eviction's edges": ({}, [S0, S1, emit(0, 5), emit(1, 12), of("evict", 5), of("readmit", 12)]),
    "emission of another in an eviction": ({}, [S0, emit(0, 5, r2=1), of("evict", 4), of("readmit", 6)]),
    "an eviction without end": ({"endless_evictions": 1}, [S0, S1, emit(0, 5), emit(1, 15), of("evict", 5)]),
    "an eviction to the log's end": ({}, [S0, emit(0, 5), of("evict", 5)]),
    "emission of no token": ({"empty_emissions": 1}, [S0, S1, emit(0, 5, r1=0, r2=1), emit(1, 15)]),
    "emission to nobody": ({"empty_emissions": 1}, [S0, {"e": "emit", "step": 0, "t": 5, "tokens": {}}]),
    "an empty emission is not checked": ({"empty_emissions": 1}, [S0, emit(0, 5), emit(0, 7, r1=0), gc(6, 8)]),
    "one request on two lines": ({"joined_emissions": 1}, [S0, emit(0, 5), emit(0, 5)]),
    "delivery of no token": ({"empty_deliveries": 1}, [of("deliver", 5, tokens=0, boundary="client")]),
    "a member told twice": ({"repeated_members": 1}, [step(0, 0, 9, members=["r1", "r1"])]),
    "unknown event": ({"unknown_events": 2}, [{"e": "magic", "x": 1}, {"e": "more"}]),
    "unknown fields": ({"unknown_fields": 3}, [step(0, 0, 10, colour="red", n=1), of("admit", 3, colour="red")]),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTES)
def test_note_is_counted(case: str, tmp_path: Path) -> None:
    notes, events = NOTES[case]
    assert load(tmp_path, *events).notes == notes


def test_unknown_header_fields_are_counted(tmp_path: Path) -> None:
    assert load(tmp_path, header=HEADER | {"colour": "red"}).notes == {"unknown_fields": 1}


def test_a_torn_last_line_is_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    whole = load(tmp_path, S0, emit(0, 5))
    text = path.read_bytes()
    path.write_bytes(text + '{"e":"step","id":1,"t0":"é'.encode()[:-1])
    from stallbook.log import open_run

    torn = open_run(path)
    assert torn.notes == {"torn_tail_bytes": 26}
    assert len(torn.steps.id) == len(whole.steps.id) == 1
    path.write_bytes(text.rstrip(b"\n"))  # whole, but for the newline
    assert not open_run(path).notes
    assert len(open_run(path).emissions.step) == 1


def test_pauses_are_merged_as_a_union(tmp_path: Path) -> None:
    events = [gc(4, 9, generation=0), gc(0, 5, generation=1), gc(20, 30), gc(2, 3, process="worker:0")]
    pauses = load(tmp_path, *events).pauses
    assert pauses.t0.tolist() == [0, 2, 20]
    assert pauses.t1.tolist() == [9, 3, 30]
    assert pauses.generation.tolist() == [1, 2, 2]


EVICTIONS: dict[str, tuple[list[tuple[int, int]], list[tuple[str, int]]]] = {
    "twice": ([(1, 5), (6, 8)], [("evict", 1), ("readmit", 5), ("evict", 6), ("readmit", 8)]),
    "touching, told in disorder": ([(1, 5), (5, 8)], [("evict", 5), ("readmit", 8), ("evict", 1), ("readmit", 5)]),
    "at once": ([(5, 5)], [("evict", 5), ("readmit", 5)]),
    "at once, told in disorder": ([(5, 5)], [("readmit", 5), ("evict", 5)]),
    "at once, then again": ([(5, 5), (5, 8)], [("evict", 5), ("readmit", 5), ("evict", 5), ("readmit", 8)]),
    "ends, opens and ends at once": ([(1, 5), (5, 5)], [("evict", 1), ("readmit", 5), ("evict", 5), ("readmit", 5)]),
    "ends and opens without end": ([(1, 5), (5, NEVER)], [("evict", 1), ("readmit", 5), ("evict", 5)]),
    "told twice without end": ([(1, NEVER)], [("evict", 1), ("evict", 4)]),
}  # fmt: skip


@pytest.mark.parametrize("case", EVICTIONS)
def test_evictions_from_events(case: str, tmp_path: Path) -> None:
    windows, events = EVICTIONS[case]
    others = [of("evict", 2, "r0"), of("readmit", 5, "r0"), of("evict", 3, "r2"), of("readmit", 3, "r2")]
    run = load(tmp_path, *others, *(of(event, t) for event, t in events))
    mine = run.evictions.request == run.requests.names.index("r1")
    assert list(zip(run.evictions.t0[mine].tolist(), run.evictions.t1[mine].tolist(), strict=True)) == windows
    assert len(run.evictions.t0) == len(windows) + 2


def test_a_merged_eviction_keeps_what_was_told(tmp_path: Path) -> None:
    events = [of("evict", 1), of("evict", 2, mode="recompute", lost_tokens=7), of("readmit", 5)]
    evictions = load(tmp_path, *events).evictions
    assert (evictions.recompute.tolist(), evictions.lost_tokens.tolist()) == ([1], [7])


def test_emissions_are_joined_and_ordered(tmp_path: Path) -> None:
    run = load(tmp_path, S1, S0, emit(1, 15, b=1), emit(0, 5, b=2, a=1), emit(1, 15, a=3, b=1))
    assert run.requests.names == ("a", "b")
    assert run.emissions.request.tolist() == [0, 0, 1, 1]
    assert run.emissions.step.tolist() == [0, 1, 0, 1]
    assert run.emissions.tokens.tolist() == [1, 3, 2, 2]
    assert run.steps.emit.tolist() == [5, 15]


def test_a_step_of_empty_emissions_emits_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, S0, emit(0, 5, r1=0)).steps.emit.tolist() == [UNKNOWN]


def test_the_order_of_lines_does_not_matter(tmp_path: Path) -> None:
    from logfiles import difference

    events = [
        of("arrive", 5, "late"), of("arrive", 1, "early"), of("admit", 4, "early"), of("admit", 2, "early"),
        step(0, 0, 10, members=["late", "early"]), step(1, 10, 20), emit(0, 6, early=1, late=1), emit(1, 15, never=1),
        segment(0, 1, 2, "tok"), segment(0, 1, 5, "decode"), segment(1, 12, 18, lane="device"), gc(18, 19), gc(2, 3),
        hold(3, 9, "lora", "early"), hold(6, None, "kv", "late"), of("evict", 7, "late"), of("readmit", 9, "late"),
        of("deliver", 9, "late", tokens=1, boundary="client"), of("deliver", 8, "late", tokens=1, boundary="frontend"),
        {"e": "probe", "t": 9, "ns": 50}, {"e": "probe", "t": 3, "ns": 51}, of("finish", 12, "early"),
    ]  # fmt: skip
    run = load(tmp_path, *events)
    assert not difference(run, load(tmp_path, *reversed(events)))
    assert run.requests.names == ("never", "early", "late")
    assert run.requests.admit.tolist() == [UNKNOWN, 2, UNKNOWN]
    assert run.names == ("decode", "engine", "kv", "lora", "tok")
    assert [run.names[i] for i in run.segments.name] == ["decode", "tok", "decode"]
    assert (run.members.known.tolist(), run.members.start.tolist()) == ([1, 0], [0, 2, 2])
    assert run.holds.t1.tolist() == [9, NEVER]
    assert all(table.dtype == np.int64 for table in (run.steps.graph, run.segments.step, run.members.request))
