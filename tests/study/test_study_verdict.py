from __future__ import annotations

import math

import numpy as np
import pytest

from stallbook.study.verdict import judge_shares, judge_times, sign_flip_p, weaker

TRIALS = 1500


def test_the_exact_p_of_small_samples() -> None:
    assert sign_flip_p([1.0]) == 1.0
    assert sign_flip_p([0.3, 0.1, 0.2, 0.4, 0.5]) == 1 / 16
    assert sign_flip_p([1.0, 1.0, 1.0, 1.0, -1.0]) == 12 / 32
    assert sign_flip_p([]) == 1.0
    assert sign_flip_p([0.0] * 5) == 1.0


def test_many_pairs_draw_their_flips_the_same_way_each_time() -> None:
    changes = list(np.random.default_rng(3).normal(0.5, 1.0, 30))
    assert sign_flip_p(changes) == sign_flip_p(changes)
    assert 0 < sign_flip_p(changes) < 0.05


def test_a_large_and_even_change_is_established() -> None:
    verdict = judge_times([100, 110, 90, 120, 105], [50, 57, 44, 61, 52])
    assert (verdict.word, verdict.down, verdict.up, verdict.pairs) == ("established", 5, 0, 5)
    assert verdict.change == pytest.approx(0.5, rel=0.03)


def test_a_change_that_differs_much_from_trace_to_trace_is_suggestive_at_most() -> None:
    assert judge_times([100] * 5, [95, 90, 40, 12, 3]).word == "suggestive"


def test_a_tiny_change_is_not_resolved_however_even() -> None:
    assert judge_times([100.0] * 5, [99, 98.9, 99.1, 99, 98.8]).word == "not resolved"


def test_one_of_five_the_other_way_is_suggestive_when_it_is_the_smallest() -> None:
    assert judge_times([100] * 5, [70, 72, 68, 71, 101]).word == "suggestive"
    assert judge_times([100] * 5, [70, 72, 68, 71, 180]).word == "not resolved"


def test_fewer_than_five_pairs_are_never_established_and_fewer_than_four_say_nothing() -> None:
    for pairs in range(6):
        word = judge_times([100.0] * pairs, [10.0] * pairs).word
        assert word == ("established" if pairs == 5 else "suggestive" if pairs == 4 else "not resolved")


def test_a_rise_is_judged_like_a_fall() -> None:
    before, after = [40.0, 42, 39, 41, 44], [400.0, 410, 420, 405, 415]
    up, down = judge_times(before, after), judge_times(after, before)
    assert up.word == down.word == "established"
    assert up.change is not None
    assert down.change is not None
    assert up.change * down.change == pytest.approx(1.0)


def test_shares_are_judged_by_their_difference() -> None:
    assert judge_shares([0.03, 0.02, 0.04, 0.03, 0.03], [0.0] * 5).word == "established"
    assert judge_shares([0.0] * 5, [0.0] * 5).word == "not resolved"


def test_the_weaker_word_wins() -> None:
    assert weaker("established", "suggestive") == "suggestive"
    assert weaker("not resolved", "suggestive") == "not resolved"


@pytest.mark.parametrize("noise", ["normal", "heavy", "skewed"])
@pytest.mark.parametrize("pairs", [5, 8])
def test_false_calls_when_a_rung_changes_nothing(noise: str, pairs: int) -> None:
    """Both rungs of a pair drawn from one distribution: the words must be as rare as their tests promise."""
    rng = np.random.default_rng(11)
    draws = {
        "normal": lambda size: rng.normal(0, 0.3, size),
        "heavy": lambda size: rng.standard_t(2, size) * 0.3,
        "skewed": lambda size: rng.exponential(0.5, size),
    }
    words = []
    for _ in range(TRIALS):
        a, b = np.exp(draws[noise]((2, pairs)))
        words.append(judge_times(list(a), list(b)).word)
    three_sigma = 3 * math.sqrt(0.125 * 0.875 / TRIALS)
    assert words.count("established") / TRIALS <= 0.02
    assert (words.count("established") + words.count("suggestive")) / TRIALS <= 0.125 + three_sigma


def test_a_real_halving_under_a_third_of_noise_is_mostly_seen() -> None:
    rng = np.random.default_rng(5)
    words = [
        judge_times(list(np.exp(rng.normal(0, 0.1, 5))), list(0.5 * np.exp(rng.normal(0, 0.1, 5)))).word
        for _ in range(300)
    ]
    assert words.count("established") > 250
