"""Noise is used up by work: what a machine took for its work is what it takes, whatever the steps are like."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from test_predict_vllm import COSTS, SMALL, as_recorded, workload

from stallbook.predict.answer import levels
from stallbook.predict.outcome import brief
from stallbook.predict.pace import BLOCK_NS, STALL, Noise, RunPace
from stallbook.predict.simulate import Setup, simulate
from stallbook.predict.speed import Series, Waits
from stallbook.predict.vllm import VllmPolicy
from stallbook.predict.vllm_model import fit_vllm

MS = 1_000_000


def noise_of(factor: list[float], work: float = 10.0 * MS, delay: int = 0) -> Noise:
    """Steps of the same work, one after the other, with a wait after each; chunks likewise."""
    f, w = np.array(factor), np.full(len(factor), work)
    t = np.concatenate([[0], np.cumsum(np.rint(f * w).astype(np.int64) + delay)[:-1]])
    return Noise(t, f, t, f, w, w)


def taken(pace: RunPace, work: float, whole: float) -> float:
    """What so much work takes, over what it has, in steps of `work`."""
    now, done = 0, 0.0
    while done < whole:
        now += round(pace.step(now, work) * work)
        done += work
    return now / done


def rare(count: int = 4000) -> list[float]:
    """One step in 20 takes 8 times its law: 1.35 times the law in all. By the time that they fill it would be 3.1."""
    random = Random(1)
    return [8.0 if random.random() < 0.05 else 1.0 for _ in range(count)]


@pytest.mark.parametrize("work", [3.1 * MS, 10.0 * MS, 17.3 * MS, 90.0 * MS])
def test_long_steps_are_met_as_often_as_they_came(work: float) -> None:
    factor = rare()
    for draw in (None, 3):
        pace = RunPace(None, noise_of(factor), draw=draw)
        assert taken(pace, work, 400_000.0 * MS) == pytest.approx(np.mean(factor), rel=0.06)


def test_the_same_steps_take_what_they_took() -> None:
    factor = rare(900)
    noise = noise_of(factor, delay=300_000)
    pace, now, found = RunPace(None, noise, Waits(noise.t, np.full(len(factor), 300_000))), 0, []
    for _ in factor:
        noisy = pace.step(now, 10.0 * MS)
        end = now + round(noisy * 10 * MS)
        found.append((noisy, pace.wait(now, end)))
        now = end + found[-1][1]
    assert np.allclose([one for one, _ in found], factor)
    assert {delay for _, delay in found} == {300_000}


def test_a_hold_up_does_not_grow_with_the_work_that_it_hits() -> None:
    """A step of 10 ms that took 80 was held up by 60 beyond twice its law; one of 100 ms would be, too."""
    factor = [1.0] * 400
    factor[103] = 8.0
    pace, now, every = RunPace(None, noise_of(factor)), 0, []
    for _ in range(30):
        ns = pace.step(now, 100.0 * MS)
        every.append(ns * 100)
        now += round(ns * 100 * MS)
    assert max(every) == pytest.approx(100 + (8 - STALL) * 10)
    assert sum(one > 101 for one in every) == 1


def test_a_block_goes_on_where_it_was_placed_and_another_speed_changes_nothing() -> None:
    noise = noise_of(list(np.linspace(1.0, 1.9, 2000)))
    slow, even = (RunPace(Series(0, np.full(4, v)), noise, draw=5) for v in (3.0, 1.0))
    a, b = ([pace.step(t, 10.0 * MS) for t in range(0, BLOCK_NS, 10 * MS)] for pace in (slow, even))
    assert a == b
    assert np.diff(a).min() > -0.9
    assert int((np.diff(a) < 0).sum()) <= 1  # the end of the run goes on at its start


def test_no_level_is_drawn_off_the_middle() -> None:
    for count in (2, 9, 10):
        found = np.log(levels(count, 0.1, 1))
        assert found.mean() == pytest.approx(0.0, abs=1e-12)
        assert found.std(ddof=1) == pytest.approx(0.1)
    assert levels(9, 0.1, 1) != sorted(levels(9, 0.1, 1))


class Unsteady:
    """A machine that now and then stops for 60 ms, and whose passes scatter."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def speed(self, t_ns: int) -> float:
        return 1.0

    def wait(self, since_ns: int, t_ns: int) -> int:
        return 0

    def step(self, t_ns: int, work: float) -> float:
        return self.chunk(t_ns, work)

    def chunk(self, t_ns: int, work: float) -> float:
        stop = 60 * MS if self.random.random() < 0.03 else 0
        return self.random.uniform(0.8, 1.2) + stop / max(work, 1.0)


def test_replicas_lie_around_the_run_that_they_are_drawn_from() -> None:
    settings = replace(SMALL, num_gpu_blocks=40, max_num_batched_tokens=128)
    off = []
    for seed in (1, 2):
        trail = simulate(workload(seed, 160), Setup(VllmPolicy(settings), COSTS, Unsteady(seed)))
        model = fit_vllm(as_recorded(trail, settings))
        was = brief(trail)
        drawn = [brief(model.simulate(settings, draw=i)) for i in range(4)]
        off.append(
            [np.mean([np.log(one[name] / was[name]) for one in drawn]) for name in ("itl.p50", "itl.p90", "itl.p99")]
        )
    assert (np.abs(np.mean(off, axis=0)) < (0.03, 0.03, 0.06)).all(), off  # by the time: 0.01, 0.02, 0.18


def test_an_engine_that_works_meets_every_wait_of_its_machine_once() -> None:
    waits = Waits(np.array([5, 40, 41, 900]) * MS, np.array([3, 2, 7, 1]) * MS)
    for bounds in ([0, 30, 60, 1000], [0, 40, 41, 42, 950], [0, 2000]):
        pace = RunPace(None, noise_of([1.0] * 200), waits)
        found = [pace.wait(a * MS, b * MS) for a, b in pairwise(bounds)]
        assert sum(found) == 13 * MS
    assert (
        RunPace(None, noise_of([1.0]), waits).wait(6 * MS, 41 * MS) == 2 * MS
    )  # one that slept meanwhile met no other
    assert RunPace(None, noise_of([1.0])).wait(0, 10 * MS) == 0


def test_drawn_waits_come_as_often_as_they_came() -> None:
    t = np.arange(50, 1900, 100) * MS
    pace = RunPace(None, noise_of([1.0] * 200), Waits(t, np.full(len(t), MS)), draw=4)
    now = 0
    total = 0
    while now < 400_000 * MS:
        pace.step(now, 10.0 * MS)
        total += pace.wait(now, now + 10 * MS)
        now += 10 * MS
    assert total / now == pytest.approx(0.01, rel=0.1)
