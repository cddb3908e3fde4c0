"""The JSON report: its keys are a contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from report_standin import BASELINE_RUN, Fit, Rows, a_run, ints, partition

import stallbook as sb
from stallbook.report.jsonout import dumps
from stallbook.report.model import build
from stallbook.run import Pauses

KEYS = {
    "run": {"path", "engine", "boundary", "config"},
    "itl_ms": {"p50", "p90", "p99", "p999", "max"},
    "ttft_ms": {"p50", "p99"},
    "tail": {"threshold_ms", "gaps", "share", "count"},
    "forward_share": {"clean_median", "tail_median"},
    "reconcile": {
        "max_error_ns", "negative_parts", "skipped_steps_unexplained", "merged_pauses", "merged_evictions",
    },
    "counters": {
        "preemptions", "eager_steps", "max_decode_batch", "gc", "gen2_serving_ms", "gen2_startup_ms",
    },
}  # fmt: skip
PLAIN = {
    "rules", "requests", "tokens", "gaps", "wall_s", "tokens_per_s", "all", "histogram", "context_ms", "ceiling_ms",
    "baseline", "abilities",
}  # fmt: skip


def one(p: Any) -> dict[str, Any]:
    document = json.loads(dumps([build(p)]))
    assert document["stallbook"] == 1
    (run,) = document["runs"]
    assert isinstance(run, dict)
    return run


def test_every_key_is_there_with_and_without_gaps() -> None:
    for rows in (BASELINE_RUN, Rows([])):
        run = one(partition(rows))
        assert set(run) >= PLAIN | set(KEYS)
        for key, names in KEYS.items():
            assert set(run[key]) >= names
        assert set(run["histogram"][0]) == {"low_ms", "high_ms", "gaps", "primary"}


def test_figures() -> None:
    run = one(partition(BASELINE_RUN))
    assert (run["requests"], run["tokens"], run["wall_s"], run["tokens_per_s"]) == (2, 4, 2.0, 2.0)
    assert run["ttft_ms"]["p50"] == 15.0
    assert run["counters"] == {
        "preemptions": 0, "eager_steps": 2, "max_decode_batch": 40, "gc": {"0": 1, "1": 0, "2": 2},
        "gen2_serving_ms": [2.0], "gen2_startup_ms": [112.0],
    }  # fmt: skip
    assert run["ceiling_ms"]["preempt"]["p999"] < run["itl_ms"]["p999"]
    assert run["histogram"][-1]["high_ms"] == 1e9
    assert run["machine"]["held_still"] is False


def test_what_was_not_recorded_is_null() -> None:
    empty = ints()
    run = one(partition(Rows([]), a_run(records=frozenset(), pauses=Pauses(empty, empty, empty, empty))))
    assert run["counters"]["gc"] == {"0": None, "1": None, "2": None}
    assert run["counters"]["gen2_serving_ms"] is None
    assert run["counters"]["preemptions"] is None
    assert run["itl_ms"]["p99"] is None


def test_an_eviction_told_twice_is_one_preemption() -> None:
    records = frozenset({"evictions"})
    run = one(partition(Rows([]), a_run(notes={"merged_evictions": 2}, records=records)))
    assert run["counters"]["preemptions"] == 0
    assert one(partition(Rows([]), a_run(preemptions=7)))["counters"]["preemptions"] == 7


def test_not_a_number_is_null() -> None:
    assert one(partition(BASELINE_RUN, baseline=Fit(spread=float("nan"))))["baseline"]["spread"] is None


def test_what_a_device_hides_is_context() -> None:
    path = Path(__file__).parents[1] / "data" / "scenarios" / "H06.jsonl"
    told = sb.report(sb.open(path))
    assert told.as_dict()["context_ms"]["hidden"] == 38
    assert "38.0 ms in all gaps" in str(told)
    assert "hidden" not in sb.report(sb.open(path.with_name("S01.jsonl"))).as_dict()["context_ms"]
