"""Tallies: exact on weighted rows, and addable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_standin import BASELINE_RUN, Rows, partition

from stallbook.causes import CLEAN
from stallbook.tally import BINS_MS, Distribution, tally

VALUES = st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 40)), min_size=1, max_size=30)


@settings(deadline=None)
@given(VALUES, st.sampled_from([0, 1, 37.5, 50, 90, 99, 99.9, 100]))
def test_percentiles_equal_those_of_every_value_written_out(pairs: list[tuple[int, int]], q: float) -> None:
    values, weights = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    assert Distribution.of(values, weights).percentile(q) == np.percentile(np.repeat(values, weights), q)


@settings(deadline=None)
@given(VALUES, VALUES)
def test_distributions_add_up(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    a, b, both = (
        Distribution.of(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]))
        for pairs in (left, right, left + right)
    )
    added = a + b
    assert (added.count, added.max) == (both.count, both.max)
    assert added.percentile(99) == both.percentile(99)


def test_an_empty_distribution_knows_nothing() -> None:
    empty = Distribution.of(np.empty(0, np.int64))
    assert (empty.count, empty.max, empty.percentile(50)) == (0, None, None)


def test_a_weight_of_zero_is_no_value() -> None:
    assert Distribution.of(np.array([9, 1]), np.array([0, 3])).max == 1


def test_mix_splits_time_and_count() -> None:
    table = tally(partition(Rows([(10, 98, {}), (100, 2, {"preempt": 80})])))
    assert table.mix().time_ns["preempt"] == 160_000_000
    assert table.mix().share["preempt"] == pytest.approx(160 / 1180)
    tail = table.tail()
    assert (tail.gaps, tail.primary["preempt"], tail.primary[CLEAN]) == (2, 2, 0)
    assert sum(tail.share.values()) == pytest.approx(1)


def test_the_tail_includes_every_gap_as_long_as_the_p99() -> None:
    assert tally(partition(Rows([(10, 50, {}), (20, 50, {})]))).tail().gaps == 50


def test_bins_are_closed_below_and_open_above() -> None:
    table = tally(partition(Rows([(4.999999, 1, {}), (5, 2, {}), (799.999999, 4, {}), (800, 8, {}), (0, 16, {})])))
    assert {b.low_ms: b.gaps for b in table.histogram() if b.gaps} == {0: 17, 5: 2, 400: 4, 800: 8}
    assert len(table.histogram()) == len(BINS_MS)


def test_forward_share_leaves_empty_gaps_out() -> None:
    table = tally(partition(Rows([(0, 99, {}), (10, 1, {"residual": 4})])))
    assert table.part_share("fwd", clean=True).percentile(50) == pytest.approx(0.6)


def test_without_a_cause_the_rest_stays() -> None:
    table = tally(partition(Rows([(10, 1, {}), (50, 1, {"gc": 45})])))
    assert table.without("gc").max == 10_000_000


def test_tallies_of_runs_with_other_causes_add_up() -> None:
    left = tally(partition(Rows([(10, 3, {}), (90, 1, {"other:kv": 80})], causes=("fwd", "residual", "other:kv"))))
    right = tally(partition(Rows([(20, 5, {"gc": 8})], causes=("gc", "fwd", "residual"))))
    both = left + right
    assert both.causes == ("gc", "fwd", "residual", "other:kv")
    assert both.mix().time_ns == {"gc": 40_000_000, "fwd": 100_000_000, "residual": 0, "other:kv": 80_000_000}
    assert both.mix().primary == {"gc": 5, "fwd": 0, "residual": 0, "other:kv": 1, CLEAN: 3}
    assert (both.lengths.count, both.lengths.max) == (9, 90_000_000)


def test_a_run_added_to_itself_keeps_its_percentiles_and_shares() -> None:
    one = tally(partition(BASELINE_RUN))
    two = one + replace(one)
    assert two.tail().share == pytest.approx(one.tail().share, abs=1e-3)
    assert two.mix().gaps == 2 * one.mix().gaps


def test_no_gaps() -> None:
    table = tally(partition(Rows([])))
    assert (table.tail_ns, table.mix().gaps, table.mix().share) == (None, 0, {})
    assert table.part_share("fwd", clean=False).percentile(50) is None
