"""The fits of what a decode step should have cost."""

from __future__ import annotations

import numpy as np
import pytest

from stallbook.baseline import fit_least_squares, fit_robust


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
