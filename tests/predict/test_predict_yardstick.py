"""The machine's speed is read off the bookkeeping of plain steps; an idle engine wakes as late as it was seen to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from predict_logs import SETTINGS, planted, planted_setup, workload

from stallbook.demo.limits import limits_of
from stallbook.predict import cold, yardstick
from stallbook.predict.model import WAKE_NS, fit
from stallbook.predict.observed import Observed, observe, wakes
from stallbook.predict.pace import Noise, RunPace
from stallbook.predict.policy import DemoPolicy
from stallbook.predict.simulate import simulate
from stallbook.predict.speed import BIN_NS, Series
from stallbook.predict.yardstick import BEHIND_PROMPT, HELD_UP, LEAST, WINDOW_NS, yardstick_of
from stallbook.run import Run

NONE = np.empty(0, np.int64)
SILENT = Noise(NONE, NONE.astype(float), NONE, NONE.astype(float), NONE.astype(float), NONE.astype(float))
SLOWER_AT = 40
"""The bin from which on the machine of `slowed` is slower."""


def seen_of(run: Run) -> Observed:
    return observe(run, DemoPolicy(limits_of(SETTINGS)))


def slowed(factor: float) -> Run:
    """The planted engine on a machine that is slower from its tenth second on."""
    speed = Series(0, np.where(np.arange(80) < SLOWER_AT, 1.0, factor))
    trail = simulate(workload(SETTINGS), planted_setup(SETTINGS, pace=RunPace(speed, SILENT)))
    return trail.run(engine="stallbook demo (planted)", config=SETTINGS.as_dict(), path="slowed.stall")


def test_a_machine_that_holds_still_is_told_to() -> None:
    seen = seen_of(planted())
    series = yardstick_of(seen).series(seen)
    assert series is not None
    assert np.allclose(series.values, 1.0, atol=1e-3)


def test_where_no_size_tells_moments_apart_the_machine_held_still() -> None:
    seen = seen_of(planted(seconds=8.0))  # its large batches and its small ones were never met within one second
    series = yardstick_of(seen).series(seen)
    assert series is not None
    assert np.allclose(series.values, 1.0, atol=1e-2)


@pytest.mark.parametrize("factor", [1.3, 0.8])
def test_a_machine_that_slows_down_is_seen_to(factor: float) -> None:
    usual, seen = yardstick_of(seen_of(planted())), seen_of(slowed(factor))
    series = usual.series(seen)
    assert series is not None
    edge, around = SLOWER_AT * BIN_NS, WINDOW_NS // 2 + BIN_NS
    t = np.arange(len(series.values)) * BIN_NS
    assert np.allclose(series.values[t < edge - around], 1.0, atol=1e-3)
    assert np.allclose(series.values[t > edge + around], factor, rtol=1e-3)


@pytest.mark.parametrize("factor", [1.3, 0.7])
def test_a_run_that_slowed_down_tells_it_by_itself(factor: float) -> None:
    seen = seen_of(slowed(factor))
    series = yardstick_of(seen).series(seen)
    assert series is not None
    edge, around = SLOWER_AT, WINDOW_NS // BIN_NS
    before, after = series.values[around : edge - around], series.values[edge + around : -around]
    assert np.median(after) / np.median(before) == pytest.approx(factor, rel=0.06)  # few sizes were met on both sides
    assert max(before.std() / before.mean(), after.std() / after.mean()) < 0.04


def test_a_long_run_has_fewer_moments_than_seconds_and_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = seen_of(slowed(1.3))
    fine = yardstick_of(seen).usual
    monkeypatch.setattr(yardstick, "MOMENTS", 10)  # of two seconds each
    coarse = yardstick_of(seen).usual
    assert fine.keys() == coarse.keys()
    assert np.median([abs(fine[n] / coarse[n] - 1) for n in fine]) < 0.06


def test_the_series_begins_with_the_run() -> None:
    seen = seen_of(slowed(1.3))
    series = yardstick_of(seen_of(planted())).series(seen)
    assert series is not None
    assert series.origin == seen.origin


def test_what_its_own_run_slowed_by_is_not_taken_for_its_costs() -> None:
    steady, model = fit(planted()), fit(slowed(1.3))
    assert model.speed is not None
    found = model.costs.laws["captured"]["row"] / model.speed.level
    assert found == pytest.approx(steady.costs.laws["captured"]["row"], rel=0.13)
    assert np.median(np.abs(model.noise.factor - 1)) < 0.05


def test_a_step_that_was_held_up_counts_as_so_much_and_no_more() -> None:
    seen = seen_of(planted())
    sched = seen.tables["sched"]
    held = sched["ns"].copy()
    plain = np.flatnonzero(seen.run.steps.decode_tokens > 0)
    one = int(plain[len(plain) // 2])
    held[one] *= 1000
    told = replace(seen, tables=seen.tables | {"sched": sched | {"ns": held}})
    was, now = (yardstick_of(seen).series(one) for one in (seen, told))
    assert was is not None
    assert now is not None
    assert now.values.max() <= was.values.max() * (1 + (HELD_UP - 1) / LEAST)


def assert_told_nothing_by(odd: npt.NDArray[np.bool_], seen: Observed) -> None:
    """However long the bookkeeping of the odd steps took, the yardstick and its series are the same."""
    usual, sched = yardstick_of(seen), seen.tables["sched"]
    assert odd.any()
    assert not odd.all()
    wild = replace(seen, tables=seen.tables | {"sched": sched | {"ns": np.where(odd, 50 * sched["ns"], sched["ns"])}})
    was, now = usual.series(seen), usual.series(wild)
    assert was is not None
    assert now is not None
    assert np.array_equal(was.values, now.values)
    assert yardstick_of(wild) == usual


def test_steps_with_a_prompt_a_copy_or_a_tokenizer_tell_nothing() -> None:
    seen = seen_of(planted(preemption="swap"))
    run = seen.run
    odd = np.zeros(len(run.steps.id), np.bool_)
    for name in ("prefill", "swap"):
        odd[seen.tables[name]["step"]] = True
    odd[run.segments.step[run.segments.name == run.names.index("tok")]] = True
    assert_told_nothing_by(odd, seen)


def test_steps_behind_a_prompt_or_a_collection_or_of_another_batch_tell_nothing() -> None:
    seen = seen_of(planted())
    run = seen.run
    rows, behind = run.steps.decode_tokens, set()
    for step in seen.tables["prefill"]["step"].tolist():
        behind |= set(range(step, step + BEHIND_PROMPT + 1))
    for t in run.pauses.t0.tolist():
        step = int(np.flatnonzero(run.steps.t0 <= t)[-1])
        behind |= {step, step + 1}
    behind |= {i for i in range(1, len(rows)) if rows[i] != rows[i - 1]}
    odd = np.array([i in behind for i in range(len(rows))])
    assert_told_nothing_by(odd, seen)


def test_steps_that_ask_whether_a_prompt_is_back_tell_nothing() -> None:
    seen = seen_of(planted(tokenize="process"))
    steps, r = seen.run.steps, seen.run.requests
    asking = [
        any(arrive <= t0 and admit >= t1 for arrive, admit in zip(r.arrive, r.admit, strict=True))
        for t0, t1 in zip(steps.t0, steps.t1, strict=True)
    ]
    odd = np.array(asking) & (steps.blocked == 0)  # nobody waits for anything else, so they are at the tokenizer
    assert_told_nothing_by(odd, seen)


def test_too_few_steps_tell_nothing() -> None:
    seen = seen_of(planted())
    assert replace(yardstick_of(seen), usual={}).series(seen) is None


def test_an_idle_engine_is_as_late_as_it_was_planted_to_be() -> None:
    late = wakes(planted())
    assert len(late) >= 1
    assert (late == 80_000).all()
    assert fit(planted()).wake_ns == 80_000


def test_an_engine_that_waits_for_a_tokenizer_is_not_late() -> None:
    run = planted(tokenize="process")
    assert "tok" in run.names
    assert not len(wakes(run))
    assert fit(run).wake_ns == WAKE_NS


def test_the_terms_of_cold_caches_are_the_same_one_by_one_and_for_many() -> None:
    padded, since = np.meshgrid([1, 2, 5, 8, 24, 200, 512], [0, 1, 2, 7, cold.STEPS, cold.STEPS + 1, 10**9])
    first, after = cold.columns(padded.ravel(), since.ravel())
    for n, k, a, b in zip(padded.ravel().tolist(), since.ravel().tolist(), first, after, strict=True):
        assert (a, b) == cold.shares(n, k)
    assert cold.shares(1, 0)[0] > cold.shares(8, 0)[0] > 0 == cold.shares(1, 0)[1]
    assert cold.shares(1, 1)[1] > cold.shares(1, 2)[1] > cold.shares(8, 2)[1] > 0 == cold.shares(1, 1)[0]
