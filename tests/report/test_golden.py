"""Real logs of the engine that the method was first shown on, with the figures that its own analysis printed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from golden_text import check, check_block

from stallbook.log import open_run
from stallbook.partition import Rules
from stallbook.report import RunReport, report

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
DOCS = Path(__file__).parents[2] / "docs"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.npz") if not path.stem.endswith(".parts"))
pytestmark = pytest.mark.parametrize("name", NAMES)


def drawn(name: str, rules: Rules = "post") -> RunReport:
    """The report of a log, without the place where it happens to lie."""
    return replace(report(open_run(GOLDEN / f"{name}.npz"), rules), path=f"{name}.npz")


@cache
def both(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is reported, and what is expected, with the causes called as they are here."""
    reported = drawn(name).as_dict()
    expected = json.loads((GOLDEN / f"{name}.expected.json").read_text())
    for key in ("tail_share", "all_share", "evicted_context_ms"):
        expected[key]["fwd"] = expected[key].pop("kernel")
    return reported, expected


def test_percentiles(name: str) -> None:
    reported, expected = both(name)
    for key in ("p50", "p90", "p99", "p999", "max"):
        assert reported["itl_ms"][key] == pytest.approx(expected[f"itl_{key}"], rel=1e-6)
    for key in ("p50", "p99"):
        assert reported["ttft_ms"][key] == pytest.approx(expected[f"ttft_{key}"], rel=1e-6)
    assert reported["tokens_per_s"] == pytest.approx(expected["tok_per_s"], rel=1e-6)


def test_shares(name: str) -> None:
    reported, expected = both(name)
    assert reported["tail"]["share"] == pytest.approx(expected["tail_share"], abs=1e-6)
    assert reported["all"]["share"] == pytest.approx(expected["all_share"], abs=1e-6)
    told = reported["forward_share"]
    assert told["clean_median"] == pytest.approx(expected["fwd_share_clean_median"], abs=1e-6)
    assert told["tail_median"] == pytest.approx(expected["fwd_share_tail_median"], abs=1e-6)
    assert reported["context_ms"] == pytest.approx(expected["evicted_context_ms"], rel=1e-6)


def test_counts(name: str) -> None:
    reported, expected = both(name)
    assert {key: reported[key] for key in ("requests", "tokens", "gaps")} == {
        key: expected[key] for key in ("requests", "tokens", "gaps")
    }
    counters = reported["counters"]
    for key in ("preemptions", "eager_steps", "gen2_serving_ms", "gen2_startup_ms"):
        assert counters[key] == expected[key]
    assert counters["max_decode_batch"] == expected["max_decode_B"]
    assert counters["gc"] == expected["gc_counts"]
    tail = reported["tail"]["count"]
    assert {cause: tail[cause] for cause in expected["tail_count"]} == expected["tail_count"]
    assert reported["reconcile"]["max_error_ns"] == 0
    assert reported["reconcile"]["skipped_steps_unexplained"] == expected["skipped_steps_without_eviction"]


def test_histogram(name: str) -> None:
    reported, expected = both(name)
    told = [
        {"lo": b["low_ms"], "hi": b["high_ms"], "n": b["gaps"], **{k: n for k, n in b["primary"].items() if n}}
        for b in reported["histogram"]
    ]
    assert told == [{k: n for k, n in b.items() if n or k in ("lo", "hi", "n")} for b in expected["hist"]]


def test_text(name: str) -> None:
    check(f"{name}.txt", str(drawn(name)))
    if name == "baseline__s1":
        full = str(drawn(name, "full"))
        check(f"{name}.full.txt", full)
        check_block(DOCS / "report.md", "example", f"```\n{full}```\n")


def test_first_tokens_and_stalls(name: str) -> None:
    """These logs hold no admission and one token an emission; what the post printed gives the rest."""
    full, (_, expected) = drawn(name, "full").as_dict(), both(name)
    assert full["ttft"]["reconcile"] == {"max_error_ns": 0, "negative_parts": 0}
    assert full["ttft"]["never_admitted"] == expected["requests"]
    assert sum(full["ttft"]["share"].values()) == pytest.approx(1)
    assert full["ttft"]["tail"]["threshold_ms"] == pytest.approx(expected["ttft_p99"])
    assert full["stalls"]["max_ms"] == pytest.approx(expected["itl_max"])
    assert full["stalls"]["worst"][0]["length_ms"] == full["stalls"]["max_ms"]
    assert full["itl_series"]["zero_filled_ms"] == full["itl_ms"]
    assert full["boundaries"] == {}
