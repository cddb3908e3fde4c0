"""Honest numbers: what is not zero does not print as zero."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallbook.report import words
from stallbook.report.stalled import rules_out
from stallbook.stalls import Stall


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0, "0"), (1e-6, "<0.001"), (0.0123, "0.012"), (0.9999, "1.00"), (9.999, "10.0"), (13.74, "13.7"),
        (99.96, "100"), (9466.2, "9,466"),
    ],
)  # fmt: skip
def test_ms(value: float | None, text: str) -> None:
    assert words.ms(value) == text


def test_the_smallest_share_has_a_bar_and_none_has_none() -> None:
    assert words.bar(1e-9, 12) == "▏"
    assert words.bar(0, 12) == ""
    assert words.bar(1, 12) == "█" * 12


def test_marks_fill_the_line_and_show_every_cause() -> None:
    letters = words.mark_of(("prefill", "gc"))
    line = words.marks({"clean": 100_000, "prefill": 1, "gc": 1}, letters, 36)
    assert line == "·" * 34 + "PG"
    assert words.marks({"clean": 0}, letters, 36) == ""


def test_more_causes_than_cells() -> None:
    names = tuple(f"other:{i}" for i in range(20))
    letters = words.mark_of(names)
    assert len(set(letters.values())) == 14  # twelve letters of their own, then "+", and clean's
    assert len(words.marks(dict.fromkeys(names, 1), letters, 8)) == 8


def test_unknown_counts_are_not_zero() -> None:
    assert words.count(None) == "not recorded"
    assert words.count(0) == "0"


def test_shares_are_told_in_falling_order_and_the_small_ones_together() -> None:
    of = {"fwd": 0.5, "gc": 0.25, "tok": 0.15, "os": 0.06, "pad": 0.04, "sched": 0.0}
    assert words.shares(of, 5) == "fwd 50.0%, gc 25.0%, tok 15.0%, os 6.0%, pad 4.0%"
    assert words.shares(of, 4) == words.shares(of, 5)  # "1 others" would say less than the cause itself
    assert words.shares(of, 2) == "fwd 50.0%, gc 25.0%, 3 others 25.0%"
    assert words.shares({}) == ""


@pytest.mark.parametrize(("ns", "text"), [(0, "0.00 s"), (2_977_000_000, "2.98 s"), (39_564_000_000, "39.6 s")])
def test_seconds(ns: int, text: str) -> None:
    assert words.seconds(ns) == text


@pytest.mark.parametrize(("ms", "text"), [(None, "-"), (9_999, "9,999 ms"), (17_442, "17.4 s"), (0.5, "0.500 ms")])
def test_unit(ms: float | None, text: str) -> None:
    assert words.unit(ms) == text


def test_a_stream_that_waits_for_its_own_prefill_is_not_told_that_it_was_no_prefill() -> None:
    alone = Stall("r1", 0, 600, 1, {"prefill": 600}, "prefill", live=4, stopped=1)
    assert rules_out(alone) == "1 of 4 live streams stopped: their own prefill, for another's would stop all"
    assert "rules out what stops all" in rules_out(replace(alone, primary="preempt"))
