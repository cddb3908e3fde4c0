"""The workload is the same for everyone, byte for byte, and is the one that was described."""

from __future__ import annotations

import statistics

import pytest

from stallbook.demo.workload import MAX_NEW, MEAN_NEW, make_burst, make_trace, trace_digest

GOLDEN = "518a37f811ea89ac1d88e41c0afd6f2e9b73d6cfb551a73c0da2a199b0fe1230"


def test_a_seed_s_trace_is_fixed_for_good() -> None:
    assert trace_digest(make_trace(1, 20.0, 10.0)) == GOLDEN


def test_traces_differ_by_seed_and_repeat_by_seed() -> None:
    assert make_trace(2, 5.0, 10.0) == make_trace(2, 5.0, 10.0)
    assert trace_digest(make_trace(2, 5.0, 10.0)) != trace_digest(make_trace(3, 5.0, 10.0))


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short, long = make_trace(4, 5.0, 10.0), make_trace(4, 9.0, 10.0)
    assert long[: len(short)] == short


def test_the_mix_is_as_described() -> None:
    traces = [item for seed in range(6) for item in make_trace(seed, 60.0, 10.0)]
    sizes = [len(item.text) for item in traces]
    prompts = [size for size in sizes if size < 100_000]
    documents = [size for size in sizes if size >= 100_000]
    assert len(traces) / 360 == pytest.approx(10, rel=0.1)
    assert statistics.median(prompts) == pytest.approx(1000, rel=0.1)
    assert len(documents) / len(sizes) == pytest.approx(0.01, abs=0.006)
    assert all(150_000 <= size <= 400_020 for size in documents)
    assert statistics.fmean(item.max_new for item in traces) == pytest.approx(MEAN_NEW, rel=0.1)
    assert max(item.max_new for item in traces) <= MAX_NEW
    assert [item.at_ns for item in make_trace(1, 60.0, 10.0)] == sorted(
        item.at_ns for item in make_trace(1, 60.0, 10.0)
    )


def test_arrivals_swell_on_a_15_s_cycle() -> None:
    phases = [item.at_ns / 1e9 % 15 for seed in range(6) for item in make_trace(seed, 60.0, 10.0)]
    first, second = sum(phase < 7.5 for phase in phases), sum(phase >= 7.5 for phase in phases)
    assert 1.8 < first / second < 2.8  # (1 + 0.6 * 2 / pi) / (1 - 0.6 * 2 / pi) = 2.2


def test_a_burst_arrives_at_once_and_every_group_of_it_is_alike() -> None:
    burst = make_burst(96, 32)
    assert len(burst) == 96
    assert all(item.at_ns == 0 and len(item.text) < 20_000 for item in burst)
    groups = [burst[low : low + 32] for low in (0, 32, 64)]
    outputs = [sorted(item.max_new for item in group) for group in groups]
    assert outputs[0] == outputs[1] == outputs[2]
    assert statistics.fmean(outputs[0]) == pytest.approx(MEAN_NEW, rel=0.03)
    aged, second, third = (statistics.fmean(len(item.text) for item in group) for group in groups)
    assert second == pytest.approx(third, rel=0.01)
    assert aged - second == pytest.approx(270 * 4.4, rel=0.05)
