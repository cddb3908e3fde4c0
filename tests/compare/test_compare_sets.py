"""Comparing sets of runs: what is found, what is not, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import ABILITIES, sample, shifted, side

from stallbook.compare import KEYS, Sample, compare_samples
from stallbook.compare.sets import HEADLINE
from stallbook.compare.totals import together
from stallbook.counters import Speed
from stallbook.errors import StallbookError
from stallbook.report import compared, comparejson

SHUFFLES = 100


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.4])
def test_two_halves_of_equal_runs_are_not_resolved(noise: float) -> None:
    """Ten equal runs with seeds of their own, dealt to two sides a hundred times: figure by figure, and as a whole."""
    runs = [sample(f"r{i}", 100 + i, seed=i, noise=noise) for i in range(10)]
    rng = np.random.default_rng(8)
    deals = [rng.permutation(10) for _ in range(SHUFFLES)]
    told = [compare_samples([runs[i] for i in d[:5]], [runs[i] for i in d[5:]]) for d in deals]
    assert not any(c.pairs for c in told)
    assert sum(c.overall.word == "not resolved" for c in told) >= 95
    for name in told[0].answers:
        assert sum(c.answers[name].word == "not resolved" for c in told) >= 95, name


def test_repeats_of_five_seeds_swapped_at_random_are_not_resolved() -> None:
    """The same with pairs: which of a seed's two runs is called the new one is chance."""
    one, other = side("one", 300), side("other", 400)
    rng = np.random.default_rng(9)
    told = []
    for _ in range(SHUFFLES):
        swap = rng.random(5) < 0.5
        halves = [
            [pick[int(s) ^ k] for s, pick in zip(swap, zip(one, other, strict=True), strict=True)] for k in (0, 1)
        ]
        told.append(compare_samples(*halves))
    assert all(c.pairs is not None and len(c.pairs) == 5 for c in told)
    assert sum(c.overall.word == "not resolved" for c in told) >= 95
    for name in HEADLINE:
        assert sum(c.answers[name].word == "not resolved" for c in told) >= 95, name


def test_a_planted_tenth_of_the_p99_in_five_pairs_is_found() -> None:
    before = side("b", 500, noise=0.1)
    after = [shifted(s, f"a-{i}", 1.1, 0.01, 600 + i) for i, s in enumerate(before)]
    c = compare_samples(after, before)
    p99, p50 = c.answers["itl.p99"], c.answers["itl.p50"]
    assert p99.word == "established"
    assert p99.measured.change == pytest.approx(1.1, abs=0.02)
    assert (p99.measured.pairs, p99.measured.up, p99.measured.p) == (5, 5, 1 / 16)
    assert p50.word == "not resolved"
    assert c.overall.word == "established"
    assert compared.dumps(c).startswith("Established: p99 +10%")


def test_a_planted_change_is_found_without_pairs_too() -> None:
    c = compare_samples(side("a", 700, tail=2.0, seeds=False), side("b", 800, seeds=False))
    assert c.pairs is None
    assert c.answers["itl.p99"].word == "established"
    assert c.answers["itl.p99"].measured.p == 2 / 252
    assert c.answers["itl.p99"].measured.apart is True
    assert c.answers["gap.prefill"].word == "established"
    assert c.answers["gap.gc"].word == "not resolved"


def test_single_runs_resolve_nothing_however_far_apart() -> None:
    c = compare_samples(side("a", 1, runs=1, tail=9.0), side("b", 2, runs=1))
    assert {a.word for a in c.judged} == {"not resolved"}
    assert "1 pair can resolve nothing, 5 can" in compared.dumps(c)


def test_quantiles_of_a_side_are_those_of_everything_that_was_seen() -> None:
    runs = [*side("a", 1, runs=3), sample("odd", 9, seed=9, tail=8.0)]
    c = compare_samples(runs, side("b", 20, runs=4), paired=False)
    every = np.concatenate([s.totals.gaps.gap for s in runs])
    _, merged = c.merged
    assert merged.gaps.lengths.percentile(99) == pytest.approx(np.percentile(every, 99))
    assert merged.gaps.lengths.count == len(every)
    told = comparejson.document(c)["compare"]["a"]["merged"]["itl_ms"]
    assert told["p99"] == pytest.approx(np.percentile(every, 99) / 1e6)
    assert together([s.totals for s in runs]).tokens == sum(s.totals.tokens for s in runs)


def test_pairs_are_made_by_seed_whatever_the_order() -> None:
    before, after = side("b", 1), side("a", 50)
    c = compare_samples(after[::-1], before)
    assert c.pairs is not None
    assert all(c.before[i].seed == c.after[j].seed for i, j in c.pairs)
    partly = compare_samples(after[:4], before)
    assert partly.pairs is not None
    assert [s.name for s in partly.alone] == ["b-4.stall"]
    assert "left out" in compared.dumps(partly)
    assert compare_samples(after, before, paired=False).pairs is None


@pytest.mark.parametrize("seeds", [[None] * 3, [1, 1, 2], [7, 8, 9], [1, 8, 9]])
def test_missing_repeated_or_other_seeds_make_no_pairs(seeds: list[int | None]) -> None:
    before = side("b", 1, runs=3)
    after = [replace(s, seed=seed) for s, seed in zip(side("a", 50, runs=3), seeds, strict=True)]
    assert compare_samples(after, before).pairs is None


def test_a_slow_machine_that_looks_like_a_change_is_none_once_normalised() -> None:
    before = [sample(f"b-{i}", i, seed=i, noise=0.0) for i in range(5)]
    after = [sample(f"a-{i}", i, seed=i, noise=0.0, speed=1.3) for i in range(5)]
    with pytest.raises(StallbookError, match="drift: the machine was 30% slower"):
        compare_samples(after, before)
    c = compare_samples(after, before, allow=["drift"])
    p50 = c.answers["itl.p50"]
    assert p50.measured.word == "established"
    assert p50.normalised is not None
    assert p50.normalised.word == p50.word == "not resolved"
    assert [d.key for d in c.allowed] == ["drift"]


MOVED = Speed(90, 90e3, 0.1, (80e3, 90e3, 100e3))
UNLIKE: dict[str, dict[str, Any]] = {
    "engine": {"engine": "made 2"},
    "workload": {"workload": {"rate": 9.0}},
    "rules": {"rules": "post"},
    "boundary": {"boundary": "client"},
    "abilities": {"abilities": {**ABILITIES, "gc": "not recorded"}},
    "machine": {"machine": {"cpus": 64}},
    "drift": {"speed": MOVED},
}


@pytest.mark.parametrize("key", UNLIKE)
def test_what_is_not_alike_is_refused_by_name_unless_allowed(key: str) -> None:
    before, after = side("b", 1, runs=2), [replace(s, **UNLIKE[key]) for s in side("a", 50, runs=2)]
    with pytest.raises(StallbookError) as refused:
        compare_samples(after, before)
    assert refused.value.slug == "not-alike"
    assert f"not alike in {key}: " in str(refused.value)
    assert str(refused.value).endswith(f"--allow {key}")
    assert [d.key for d in compare_samples(after, before, allow=[key]).allowed] == [key]


def test_a_side_must_be_repeats_of_one_thing_but_sides_may_differ() -> None:
    mixed = [*side("a", 50, runs=2), sample("odd", 99, seed=3, settings={"budget": 512})]
    with pytest.raises(StallbookError, match=r"settings: budget 512 here, 256 in a-0\.stall"):
        compare_samples(mixed, side("b", 1, runs=3))
    nearly = [replace(s, settings={"blocks": 27321 + i}) for i, s in enumerate(side("a", 50, runs=3))]
    assert compare_samples(nearly, side("b", 1, runs=3)).settings == {"budget": (256, None)}
    other = [replace(s, settings={"budget": 512}) for s in side("a", 50, runs=3)]
    c = compare_samples(other, side("b", 1, runs=3))
    assert c.settings == {"budget": (256, 512)}
    assert "budget 512, not 256" in compared.dumps(c)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"trace": "x"}, "seed 1 is another trace than in"),
        ({"sizes": {"prompt tokens": (200, 1.8e5, 1.7e8)}}, "900 prompt tokens a request here, 500 on"),
    ],
)
def test_another_trace_under_the_same_seed_is_another_workload(change: dict[str, Any], text: str) -> None:
    before = [replace(s, trace="y") for s in side("b", 1, runs=2)]
    after = [replace(s, **{"trace": "y", **change}) for s in side("a", 50, runs=2)]
    with pytest.raises(StallbookError, match=text):
        compare_samples(after, before)
    assert compare_samples(after, before, allow=["workload"]).pairs is None  # the same seed is not the same work here


def test_a_few_long_prompts_by_chance_are_no_other_workload() -> None:
    few = [replace(s, sizes={"prompt tokens": (8, 8 * 800.0, 8 * 2e6)}) for s in side("a", 50, runs=2)]
    assert compare_samples(few, side("b", 1, runs=2)).allowed == ()


def test_several_differences_are_named_at_once() -> None:
    after = [replace(s, engine="made 2", machine={"cpus": 64}) for s in side("a", 50, runs=2)]
    with pytest.raises(StallbookError, match=r"engine: .*; machine: .* --allow engine,machine$"):
        compare_samples(after, side("b", 1, runs=2))
    with pytest.raises(StallbookError, match="nothing is called 'weather'"):
        compare_samples(after, side("b", 1, runs=2), allow=["weather"])


def test_a_cause_that_is_not_recorded_is_not_compared() -> None:
    c = compare_samples(side("a", 50), side("b", 1))
    assert c.answers["tail.sample"].missing == "not recorded"
    assert "tail.sample" not in {a.figure.name for a in c.judged}
    assert comparejson.document(c)["compare"]["figures"]["tail.sample"]["answer"] == "not recorded"
    assert "Not recorded: sample." in compared.dumps(c)


def test_runs_without_probes_are_judged_as_measured() -> None:
    c = compare_samples(side("a", 50, probe=False), side("b", 1, probe=False))
    assert all(a.normalised is None for a in c.judged)
    assert "probe" not in compared.dumps(c)


def wide(s: Sample) -> Sample:
    causes = ("other:a_long_name_of_some_segment_or_other", *s.totals.gaps.causes[1:])
    gaps = replace(s.totals.gaps, causes=causes, gap=s.totals.gaps.gap * 3000, parts=s.totals.gaps.parts * 3000)
    return replace(s, totals=replace(s.totals, gaps=gaps), abilities={**ABILITIES, causes[0]: "placed"})


def test_nothing_is_wider_than_80_columns() -> None:
    pairs = (side("a", 50), side("b", 1)), ([wide(s) for s in side("a", 50)], [wide(s) for s in side("b", 1)])
    many = side("an-engine-with-a-rather-long-name", 1, runs=9), side("b", 50, runs=9)
    for after, before in (*pairs, many):
        text = compared.dumps(compare_samples(after, before))
        assert not [line for line in text.splitlines() if len(line) > 80]
        json.loads(comparejson.dumps(compare_samples(after, before)))
    assert "95% of changes if the runs were drawn anew" in text
    assert "4 more" in text


def test_every_key_is_tested() -> None:
    assert {*UNLIKE, "settings"} == set(KEYS)
