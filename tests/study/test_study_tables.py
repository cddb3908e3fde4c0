from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from study_made import CAUSES, header, line, report, study

from stallbook.study.layout import Cell, Table, as_text
from stallbook.study.tables import build, to_json, to_markdown, to_text

GOLD = Path(__file__).parent / "gold"


def check_gold(name: str, text: str) -> None:
    """Compare with the gold file; STALLBOOK_WRITE_GOLD=1 writes it anew."""
    place = GOLD / name
    if os.environ.get("STALLBOOK_WRITE_GOLD"):
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
    assert text == place.read_text(encoding="utf-8")


def test_the_tables_of_a_whole_study() -> None:
    tables = build(header(), study())
    check_gold("whole.txt", to_text(tables))
    check_gold("whole.md", to_markdown(tables))


def test_the_tables_of_a_partial_and_drifting_study_past_capacity() -> None:
    lines = [x for x in study(drift=0.3) if x["seed"] <= 2 and x["rung"] != "admit-watermark"]
    tables = build(header(rate=15.0, past_capacity=True), lines)
    check_gold("partial.txt", to_text(tables, show_normalised=False))


@pytest.mark.parametrize("drift", [0.04, 0.3])
def test_nothing_is_wider_than_80_columns(drift: float) -> None:
    wide = build(
        header(), [*study(drift)[:-1], line("admit-watermark", 5, report(123456.7, 234567, 345678, 9e6, [0.1428] * 7))]
    )
    long = [row for row in to_text(wide).splitlines() if len(row) > 80]
    assert not long


def test_a_study_without_any_run_prints_dashes() -> None:
    text = to_text(build(header(), []))
    assert "0 of 35 runs" in text
    json.loads(to_json(build(header(), [])))


def test_the_mark_of_drift_and_of_overload() -> None:
    still, moved = (to_text(build(header(), study(drift))) for drift in (0.04, 0.3))
    assert "DRIFT" not in still
    assert "DRIFT" in moved
    assert "OVERLOAD" in to_text(build(header(past_capacity=True), study()))


def test_json_holds_the_numbers() -> None:
    told = json.loads(to_json(build(header(), study())))
    named = {table["name"]: table["rows"] for table in told["tables"]}
    assert named["ladder"][0]["rung"] == "baseline"
    assert set(named["ladder"][0]["p99"]) == {"median", "low", "high", "runs"}
    assert named["ends"][0]["ranges"] == {"overlap": False}
    words = {row["verdict"] for row in named["steps"]}
    assert words == {"established", "not resolved"}
    assert told["drift"]["marked"] is False


def test_full_rules_show_the_causes_that_own_anything_and_always_the_residual() -> None:
    lines = study()
    for each in lines:
        each["full"] = {**each["full"], "tail": {"share": {"os": 0.25, "slow": 0.0, "fwd": 0.75, "other:kv": 0.0}}}
    table = next(t for t in build(header(), lines, "full").tables if t.slug == "shares")
    assert table.columns == ("fwd", "residual", "os")


def test_a_log_without_some_records_shows_dashes_and_not_zeros() -> None:
    bare = report(4.0, 30.0, 300.0, 3000.0, [0, 0, 0, 0, 0, 1.0, 0], eager=None, preemptions=None)
    bare["counters"] |= {"gc": None, "gen2_serving_ms": None, "gen2_startup_ms": None}
    bare["ttft_ms"] = {"p50": None, "p99": None}
    text = to_text(build(header(settings={"rungs": ["baseline"], "seeds": [1]}), [line("baseline", 1, bare)]))
    did = text[text.index("What each rung did") :].splitlines()[2]
    assert did.split() == ["baseline", *["-"] * 7]


def test_ranges_move_below_and_then_columns_into_blocks_as_the_room_runs_out() -> None:
    def table(columns: int, cell: Cell) -> str:
        names = tuple(f"c{i}" for i in range(columns))
        return as_text(Table("t", "T", "rung", names, [("row", [cell] * columns)]))

    assert len(table(2, Cell("1", "[1-1]")).splitlines()) == 3
    assert len(table(6, Cell("12345678", "[1-1]")).splitlines()) == 4
    blocks = table(12, Cell("12345678"))
    assert blocks.count("rung") == 2
    assert all(f"c{i}" in blocks for i in range(12))


def test_the_causes_of_the_made_up_study_are_the_posts() -> None:
    shares: Any = next(t for t in build(header(), study()).tables if t.slug == "shares")
    assert shares.columns == CAUSES


def test_one_run_has_no_range_and_no_overlap() -> None:
    one = header(settings={"seeds": [1]})
    text = to_text(build(one, [x for x in study() if x["seed"] == 1]))
    ends = text[text.index("First against last") :]
    assert "too few runs" in ends
    assert "overlap" not in ends
    assert "[" not in text.replace("[min-max]", "")
    assert "established" not in text.replace("established: all the same way", "")


def test_the_first_tokens_wait_by_cause_and_what_blocked_it() -> None:
    for rules in ("post", "full"):
        told = json.loads(to_json(build(header(), study(), rules)))
        rows = {row["rung"]: row for table in told["tables"] if table["name"] == "firsts" for row in table["rows"]}
        last, before = rows["+admit watermark"], rows["+tokenize off-loop"]
        assert list(last) == ["rung", "all", "prefill", "tok", "fwd", "queue", "rest", "by KV"]
        assert (before["queue"]["median"], last["queue"]["median"], last["by KV"]["median"]) == (23, 303, 298)
        assert (last["tok"]["median"], rows["baseline"]["tok"]["median"]) == (0, 5)
        assert last["rest"]["median"] == pytest.approx(0.1)
        assert (last["queue"]["low"], last["queue"]["high"]) == (301, 305)


def test_a_study_that_does_not_tell_first_tokens_apart_has_no_such_table() -> None:
    lines = study()
    for each in lines:
        each["full"] = each["post"] = {**each["post"], "ttft": None}
    assert "firsts" not in {table.slug for table in build(header(), lines).tables}
    silent = [{**each, "full": {**each["full"], "ttft": {"mean_ms": {"queue": 1.0}, "waits": 2, "blocked_ms": None}}}
              for each in lines]  # fmt: skip
    (table,) = (table for table in build(header(), silent).tables if table.slug == "firsts")
    assert [cell.main for cell in table.rows[0][1]] == ["1.0", "1.0", "0"]
