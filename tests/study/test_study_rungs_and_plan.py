from __future__ import annotations

from itertools import pairwise

import pytest

from stallbook.demo import Settings
from stallbook.errors import StallbookError
from stallbook.study.plan import parse_seeds, plan
from stallbook.study.rungs import OURS, RUNGS, choose, settings_of


def test_each_rung_keeps_the_fixes_below_it() -> None:
    base = Settings(seconds=5, rate=9.0)
    every = [settings_of(rung, base) for rung in RUNGS]
    assert every[0] == base
    changed = [{key for key, value in vars(s).items() if value != getattr(base, key)} for s in every]
    for below, above in pairwise(changed):
        assert below < above
        assert len(above - below) == 1
    last = every[-1]
    assert (last.gc_freeze, last.compact_history, last.token_budget, last.tokenize) == (True, True, 256, "process")
    assert last.capture_sizes[-2:] == (40, 48)
    assert last.admit_watermark == 0.10


def test_our_rungs_stand_above_the_seven_and_run_only_when_they_are_named() -> None:
    assert choose(["admit-forecast", "+Work budget"]) == OURS[:2]
    assert not [rung for rung in choose([]) if rung in OURS]
    last = settings_of(OURS[-1], Settings())
    assert (last.admit_by, last.admit_watermark, last.decode_weight, last.tokenizer_nice) == ("forecast", 0, 26, 10)
    assert (last.gc_freeze, last.tokenize) == (True, "process")
    assert settings_of(RUNGS[-1], Settings()).admit_by == "free"


def test_slugs_are_the_file_names_of_the_published_logs() -> None:
    assert [rung.slug for rung in RUNGS] == [
        "baseline",
        "gc-freeze",
        "compact-history",
        "graphs-to-48",
        "budget-256",
        "tokenize-off-loop",
        "admit-watermark",
    ]


def test_rungs_are_chosen_by_name_or_slug_and_keep_the_ladders_order() -> None:
    assert [r.slug for r in choose(["+Budget 256", "baseline"])] == ["baseline", "budget-256"]
    assert choose([]) == choose([""]) == RUNGS
    alone = choose(["budget-256"])[0]
    assert settings_of(alone, Settings()).gc_freeze, "a rung alone still keeps the fixes below it"


def test_an_unknown_rung_lists_the_rungs_in_one_line() -> None:
    with pytest.raises(StallbookError) as caught:
        choose(["baseline", "+gc.thaw"])
    assert caught.value.slug == "unknown-rung"
    assert "\n" not in str(caught.value)
    assert all(rung.slug in str(caught.value) for rung in RUNGS)


def test_a_seeds_runs_stand_together_and_the_order_turns() -> None:
    cells = plan(RUNGS, (1, 2, 3))
    assert [c.seed for c in cells] == [1] * 7 + [2] * 7 + [3] * 7
    order = [[RUNGS.index(c.rung) for c in cells if c.seed == seed] for seed in (1, 2, 3)]
    assert order == [[0, 1, 2, 3, 4, 5, 6], [1, 0, 6, 5, 4, 3, 2], [2, 3, 4, 5, 6, 0, 1]]
    assert len({c.name for c in cells}) == 21


def test_the_plan_follows_the_place_of_a_seed_and_not_its_number() -> None:
    assert [c.rung for c in plan(RUNGS, (40,))] == [c.rung for c in plan(RUNGS, (1,))]


@pytest.mark.parametrize(
    ("text", "seeds"), [("1-5", (1, 2, 3, 4, 5)), ("3", (3,)), ("1,4", (1, 4)), ("7-8,2", (7, 8, 2)), ("0", (0,))]
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "5-1", "1-", "-3", "1,,2", "1,1", "1-3,2", "1-99999", "1.5", "²"])
def test_bad_seeds_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(StallbookError, match="seed"):
        parse_seeds(text)
