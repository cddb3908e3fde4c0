"""The fits of what a decode step should have cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stallbook as sb
from stallbook.baseline import BaselineFit, fit_least_squares, fit_robust
from stallbook.charges import kv_tokens
from test_partition import opened


def line(rows: np.ndarray, kv: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return 800_000 + 240_000 * rows + 20 * kv


@pytest.mark.parametrize("noise", [0.0, 0.0001, 0.03])
def test_a_size_that_most_steps_have_does_not_hide_the_others(noise: float) -> None:
    rng = np.random.default_rng(1)
    rows = np.concatenate([np.full(2_000, 24), np.full(60, 16), np.full(60, 32)])
    kv = rng.integers(2_000, 9_000, len(rows))
    cost = (line(rows, kv) * (1 + noise * rng.standard_normal(len(rows)))).astype(np.int64)
    fit = fit_robust(rows, kv, cost)
    for size in (16, 24, 32):
        expected = line(np.array([size]), np.array([5_000]))[0]
        assert abs(fit.at(np.array([size]), np.array([5_000]))[0] / expected - 1) < 0.02


def test_outliers_move_least_squares_and_not_the_robust_fit() -> None:
    rng = np.random.default_rng(2)
    rows = rng.choice([8, 16, 24, 32], 1_000)
    kv = rows * 300
    cost = (line(rows, kv) * (1 + 0.02 * rng.standard_normal(1_000))).astype(np.int64)
    cost[(rows == 32) & (rng.random(1_000) < 0.3)] += 80_000_000  # contended steps, and only large ones
    expected = line(np.array([8]), np.array([2_400]))[0]
    robust = fit_robust(rows, kv, cost).at(np.array([8]), np.array([2_400]))[0]
    bent = fit_least_squares(rows, cost).at(np.array([8]), np.array([2_400]))[0]
    assert abs(robust / expected - 1) < 0.05
    assert abs(bent / expected - 1) > 0.5


def test_edges() -> None:
    none = np.zeros(0, np.int64)
    assert fit_robust(none, none, none).method == fit_least_squares(none, none).method == "none"
    one = fit_robust(np.array([8, 8, 8]), np.array([-1, -1, -1]), np.array([10, 20, 60]))
    assert (one.method, one.at(np.array([1, 99]), np.array([-1, -1])).tolist()) == ("mean", [30, 30])


def captured(i: int, rows: int, took: int, **more: int) -> list[dict[str, object]]:
    t = 10_000_000 * i
    decode = {"e": "segment", "step": i, "name": "decode", "t0": t, "t1": t + took} | more
    size = {"graph": "captured", "padded": rows, "decode_tokens": rows}
    emit = {"e": "emit", "step": i, "t": t + took, "tokens": {f"r{k}": 1 for k in range(rows)}}
    return [{"e": "step", "id": i, "t0": t, "t1": t + took} | size, decode, emit]


def fitted(folder: Path, steps: list[list[dict[str, object]]]) -> BaselineFit:
    head = {"stallbook": 1, "engine": "x", "records": ["segments", "graph", "os"]}
    ways_in = [{"e": "arrive", "request": f"r{k}", "t": 0} for k in range(9)]
    return sb.partition(opened([head, *ways_in, *(e for one in steps for e in one)], folder)).baseline


@pytest.mark.parametrize(("clean", "delayed"), [(18, 18), (3, 9), (6, 100), (40, 2000)])
def test_steps_that_waited_for_a_core_are_not_fitted(tmp_path: Path, clean: int, delayed: int) -> None:
    truth = [captured(i, i % 3 + 1, 1_000_000 + 100_000 * (i % 3 + 1)) for i in range(clean)]
    waited = [captured(clean + i, i % 3 + 1, 5_000_000, run_delay_ns=3_000_000) for i in range(delayed)]
    fit = fitted(tmp_path, truth + waited)
    assert fit.steps_used == clean
    assert (fit.fixed_ns, fit.row_ns) == pytest.approx((1_000_000, 100_000))


def test_where_hardly_any_step_ran_undisturbed_all_are_fitted(tmp_path: Path) -> None:
    truth = [captured(0, 1, 1_100_000)]
    waited = [captured(1 + i, i % 3 + 1, 5_000_000, run_delay_ns=3_000_000) for i in range(60)]
    assert fitted(tmp_path, truth + waited).steps_used == 61


def test_a_request_s_first_token_from_its_prefill_adds_no_context_to_the_decode(tmp_path: Path) -> None:
    """Step 3 has one decode row, which attends 13 tokens; the other emission came with the last chunk of 5,000."""
    events = [
        {"stallbook": 1, "engine": "x", "records": ["segments", "graph"]},
        {"e": "arrive", "request": "a", "t": 0, "prompt_tokens": 10},
        {"e": "arrive", "request": "long", "t": 0, "prompt_tokens": 5000},
        {"e": "step", "id": 1, "t0": 0, "t1": 10, "decode_tokens": 0, "prefill_tokens": 10},
        {"e": "emit", "step": 1, "t": 10, "tokens": {"a": 1}},
        {"e": "step", "id": 2, "t0": 10, "t1": 20, "decode_tokens": 1},
        {"e": "emit", "step": 2, "t": 20, "tokens": {"a": 1}},
        {"e": "step", "id": 3, "t0": 20, "t1": 40, "decode_tokens": 1, "prefill_tokens": 5000},
        {"e": "segment", "step": 3, "name": "prefill", "t0": 20, "t1": 30},
        {"e": "emit", "step": 3, "t": 40, "tokens": {"a": 1, "long": 1}},
    ]
    assert kv_tokens(opened(events, tmp_path)).tolist() == [0, 12, 13]
