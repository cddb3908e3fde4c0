from __future__ import annotations

import math

import numpy as np
import pytest

from stallbook.compare.exact import EXACT_LIMIT, any_moved_p, deals, sign_flip_p, split_p
from stallbook.compare.interval import bootstrap
from stallbook.compare.verdict import judge_shares, judge_times, weaker

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


def test_a_change_that_differs_much_from_trace_to_trace_is_suggestive_where_the_ranges_overlap() -> None:
    assert judge_times([100, 110, 90, 120, 105], [95, 95, 40, 12, 3]).word == "suggestive"


def test_ranges_that_do_not_overlap_are_established_however_much_the_change_differs() -> None:
    assert judge_shares([0.05, 0.5, 0.15, 0.1, 0.3], [0.0, 0.0, 0.015, 0.0, 0.0]).word == "established"


def test_a_tiny_change_is_not_resolved_however_even() -> None:
    assert judge_times([100.0] * 5, [99, 98.9, 99.1, 99, 98.8]).word == "not resolved"


def test_one_of_five_the_other_way_or_hardly_at_all_resolves_nothing() -> None:
    assert judge_times([100] * 5, [70, 72, 68, 71, 101]).word == "not resolved"
    assert judge_times([100, 80, 120, 100, 100], [70, 79, 38, 61, 90]).word == "not resolved"


def test_fewer_than_five_pairs_resolve_nothing() -> None:
    for pairs in range(7):
        word = judge_times([100.0] * pairs, [10.0] * pairs).word
        assert word == ("established" if pairs >= 5 else "not resolved")


def test_many_pairs_are_judged_by_the_exact_test_alone() -> None:
    before = [100.0, 101, 99, 103, 98, 102, 100, 97, 104, 100]
    mostly = [b * r for b, r in zip(before, [0.8, 0.9, 0.85, 1.01, 0.9, 0.8, 0.95, 0.9, 0.85, 0.9], strict=True)]
    assert judge_times(before, mostly).word == "established"
    half = [b * r for b, r in zip(before, [0.8, 1.05, 0.85, 1.01, 0.9, 0.8, 0.95, 0.98, 0.85, 0.9], strict=True)]
    assert judge_times(before, half).word == "suggestive"


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


def test_unpaired_every_way_to_deal_the_runs_counts() -> None:
    assert split_p([1, 2, 3], [4, 5, 6]) == 2 / 20
    assert split_p([1.0], [2.0]) == 1.0
    assert split_p([2, 2], [2, 2]) == 1.0
    assert split_p([1, 2, 3, 4, 5], [11, 12, 13, 14, 15]) == 2 / 252
    assert split_p([1, 2], [13, 14, 15]) == 1 / 10  # the other tail would need two runs on that side
    assert split_p([], [1.0]) == 1.0


def test_unpaired_words_by_the_number_of_runs() -> None:
    words = {}
    for runs in range(1, 7):
        before, after = [100.0 + i for i in range(runs)], [50.0 + i for i in range(runs)]
        words[runs] = judge_times(before, after, paired=False).word
    assert [words[n] for n in (1, 2, 3, 4)] == ["not resolved"] * 4
    assert [words[n] for n in (5, 6)] == ["established"] * 2
    assert judge_times([100.0, 101, 102, 103, 80], [70.0, 71, 79, 81, 69], paired=False).word == "suggestive"


def test_too_many_ways_are_drawn_the_same_each_time_and_agree_with_all() -> None:
    rng = np.random.default_rng(2)
    before, after = list(rng.normal(0, 1, 12)), list(rng.normal(0.8, 1, 12))
    assert len(deals(12, 12)) == EXACT_LIMIT + 1
    p = split_p(before, after)
    assert p == split_p(before, after)
    t = (np.mean(after) - np.mean(before)) / math.sqrt((np.var(before, ddof=1) + np.var(after, ddof=1)) / 12)
    assert p == pytest.approx(math.erfc(abs(t) / math.sqrt(2)), abs=0.02)  # a normal's tail, near enough


def test_one_test_of_many_figures() -> None:
    rng = np.random.default_rng(4)
    before = rng.normal(0, 1, (8, 6))
    same, moved = before + rng.normal(0, 0.1, (8, 6)), before.copy()
    moved[3] += 1 + rng.normal(0, 0.01, 6)
    moved[[0, 1, 2, 4, 5, 6, 7]] += rng.normal(0, 0.1, (7, 6))
    assert any_moved_p(before, moved, paired=True) == 1 / 32
    assert any_moved_p(before, same, paired=True) > 0.05
    assert any_moved_p(before, before + 5 * np.eye(8)[3][:, None], paired=False) <= 0.01
    assert any_moved_p(before, same, paired=False) > 0.5
    assert any_moved_p(np.empty((0, 3)), np.empty((0, 3)), paired=True) == 1.0


def test_a_bootstrap_interval_needs_eight_runs() -> None:
    rng = np.random.default_rng(6)
    before = list(np.exp(rng.normal(3, 0.1, 10)))
    after = [0.8 * b * math.exp(e) for b, e in zip(before, rng.normal(0, 0.02, 10), strict=True)]
    assert bootstrap(before[:7], after[:7], paired=True, ratio=True) is None
    low, high = bootstrap(before, after, paired=True, ratio=True) or (0, 0)
    assert -0.24 < low < -0.2 < high < -0.17
    wide = bootstrap(before, after, paired=False, ratio=True)
    assert wide is not None
    assert wide[1] - wide[0] > 2 * (high - low)


@pytest.mark.parametrize("noise", ["normal", "heavy", "skewed"])
@pytest.mark.parametrize(("runs", "paired"), [(5, True), (6, True), (8, True), (5, False), (8, False)])
def test_false_answers_when_nothing_changes(noise: str, runs: int, paired: bool) -> None:
    """Both sides drawn from one distribution: the words must be as rare as they promise."""
    rng = np.random.default_rng(11)
    draws = {
        "normal": lambda size: rng.normal(0, 0.3, size),
        "heavy": lambda size: rng.standard_t(2, size) * 0.3,
        "skewed": lambda size: rng.exponential(0.5, size),
    }
    words = []
    for _ in range(TRIALS):
        a, b = np.exp(draws[noise]((2, runs)))
        words.append(judge_times(list(a), list(b), paired=paired).word)
    least, both = (0.02, 0.055) if paired and runs < 7 else (0.01, 0.02)
    three_sigma = 3 * math.sqrt(both * (1 - both) / TRIALS)
    assert words.count("established") / TRIALS <= least + three_sigma / 2
    assert (words.count("established") + words.count("suggestive")) / TRIALS <= both + three_sigma


def test_a_real_halving_under_a_third_of_noise_is_mostly_seen() -> None:
    rng = np.random.default_rng(5)
    words = [
        judge_times(list(np.exp(rng.normal(0, 0.1, 5))), list(0.5 * np.exp(rng.normal(0, 0.1, 5)))).word
        for _ in range(300)
    ]
    assert words.count("established") > 250
