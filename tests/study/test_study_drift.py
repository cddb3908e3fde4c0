from __future__ import annotations

import numpy as np
import pytest
from study_made import line, report

from stallbook.study.drift import drift_of, probe_summary, speed_factors
from stallbook.study.outcomes import normalised, outcomes

BODY = report(4.0, 30.0, 300.0, 3000.0, [0, 0, 0, 0, 0, 1.0, 0])


def test_the_probe_of_a_run_is_summed_up() -> None:
    summary = probe_summary(np.array([50, 60, 70, 80, 1000], dtype=np.int64))
    assert (summary["samples"], summary["median_ns"]) == (5, 70.0)
    assert probe_summary(np.array([], dtype=np.int64))["median_ns"] is None


def test_times_are_divided_and_rates_multiplied_by_the_speed_factor() -> None:
    lines = [line("baseline", 1, BODY, 50_000), line("baseline", 2, BODY, 60_000), line("baseline", 3, BODY, 40_000)]
    assert speed_factors(lines)["baseline", 2] == pytest.approx(1.2)
    slow = normalised(outcomes(lines, "post")[1])
    assert slow.times["p99"] == pytest.approx(25.0)
    assert slow.tokens_per_s == pytest.approx(2400.0)
    assert slow.pauses is not None
    assert slow.pauses[0] == pytest.approx(150.3 / 1.2)
    assert slow.counts["preemptions"] == 140


def test_a_run_without_a_probe_keeps_its_times() -> None:
    lines = [line("baseline", 1, BODY, None), line("baseline", 2, BODY, 60_000)]
    run = outcomes(lines, "post")[0]
    assert run.factor is None
    assert normalised(run).times == run.times


@pytest.mark.parametrize(("slow", "marked"), [(54_900, False), (55_100, True)])
def test_a_study_is_marked_past_ten_percent(slow: float, marked: bool) -> None:
    drift = drift_of([line("baseline", 1, BODY, 50_000), line("gc-freeze", 1, BODY, slow)])
    assert drift.marked is marked


def test_drift_within_a_seed_is_told_apart_from_drift_between_seeds() -> None:
    lines = [line(rung, seed, BODY, 50_000 * seed) for seed in (1, 2) for rung in ("baseline", "gc-freeze")]
    drift = drift_of(lines)
    assert drift.marked
    assert drift.worst_seed_spread == 0.0


def test_no_probe_at_all_is_no_drift() -> None:
    assert drift_of([line("baseline", 1, BODY, None)]).median_ns is None
