"""Knobs as they are typed, goals as they are typed, and settings that are found."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from predict_logs import planted

from stallbook.demo.settings import Settings
from stallbook.errors import StallbookError
from stallbook.predict.answer import Base, Figure, _in_order, base_of
from stallbook.predict.knobs import KNOBS, changed, fixes, parse, written
from stallbook.predict.model import fit
from stallbook.predict.outcome import Outcome
from stallbook.predict.pool import runner
from stallbook.predict.search import best_order, read_goal, search, trade_figure
from stallbook.report.lines import grid
from stallbook.report.predicted import Told, answer


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("token_budget=256", ("token_budget", 256)), ("--token-budget=256", ("token_budget", 256)),
        ("admit_watermark=0.1", ("admit_watermark", 0.1)), ("gc_freeze=true", ("gc_freeze", True)),
        ("compact-history=off", ("compact_history", False)), ("capture_sizes=1,2,4", ("capture_sizes", (1, 2, 4))),
        ("capture_sizes=none", ("capture_sizes", ())), ("tokenize=process", ("tokenize", "process")),
        ("preemption=recompute", ("preemption", "recompute")), ("rate=8.5", ("rate", 8.5)),
    ],
)  # fmt: skip
def test_settings_are_typed_as_the_demo_takes_them(text: str, wanted: tuple[str, object]) -> None:
    assert parse(text) == wanted
    assert changed(Settings(rate=5.0), dict([wanted]))


@pytest.mark.parametrize(
    ("text", "slug"),
    [("budget=256", "unknown-knob"), ("token_budgit=2", "unknown-knob"), ("token_budget", "bad-knob"),
     ("token_budget=x", "bad-knob"), ("gc_freeze=maybe", "bad-knob"), ("", "unknown-knob")],
)  # fmt: skip
def test_what_cannot_be_turned_is_named(text: str, slug: str) -> None:
    with pytest.raises(StallbookError) as refused:
        parse(text)
    assert refused.value.slug == slug


def test_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(StallbookError):
        changed(Settings(), {"token_budget": 3})


def test_every_knob_is_a_setting_and_every_fix_is_one_that_is_not_made() -> None:
    settings = Settings(rate=5.0)
    assert {name for name in KNOBS if hasattr(settings, name)} == set(KNOBS)
    every = fixes(settings)
    assert {"token_budget": 256} in every
    assert {"capture_sizes": (1, 2, 4, 8, 16, 24, 32, 40, 48)} in every
    done = settings
    for fix in every:
        done = changed(done, {k: v for k, v in fix.items() if k not in ("kv_blocks", "max_num_seqs")})
    assert [name for fix in fixes(done) for name in fix] == ["kv_blocks"]


def test_a_change_is_written_as_it_is_typed() -> None:
    assert written({"token_budget": 256, "gc_freeze": True, "capture_sizes": (1, 2)}) == (
        "token_budget=256, gc_freeze=on, capture_sizes=1,2"
    )
    assert written({}) == "as recorded"


@pytest.mark.parametrize(
    ("text", "name", "limit", "below"),
    [("itl.p99.9 < 50ms", "itl.p99.9", 50.0, True), ("itl.p99<0.02 s", "itl.p99", 20.0, True),
     ("tokens_per_s > 1500", "tokens_per_s", 1500.0, False), ("preemptions <= 3", "preemptions", 3.0, True)],
)  # fmt: skip
def test_a_goal_is_read(text: str, name: str, limit: float, below: bool) -> None:
    goal = read_goal(text)
    assert (goal.name, goal.limit, goal.below) == (name, limit, below)
    assert goal.met(limit)
    assert not goal.met(limit * (2 if below else 0.5))


@pytest.mark.parametrize("text", ["", "itl.p99.9", "itl.p99.9 < fast", "speed < 5", "itl.p12 < 5", "itl.p99 < 1.2.3"])
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(StallbookError):
        read_goal(text)


def test_what_is_traded_has_short_names() -> None:
    assert [trade_figure(t) for t in ("ttft", "throughput", "ttft.p99")] == ["ttft.p50", "tokens_per_s", "ttft.p99"]


@dataclass
class Bowl:
    """A runner whose outcomes are a formula: the tail falls with the budget and the watermark, the price rises."""

    calls: int = 0

    def __call__(self, jobs: object) -> list[Outcome]:
        out = []
        for job in jobs:  # type: ignore[attr-defined]
            self.calls += 1
            s = job.settings
            tail = s.token_budget / 20 + 100 * (1 - s.gc_freeze) + 200 * abs(s.admit_watermark - 0.15)
            price = 30 + 4000 / s.token_budget + 100 * s.admit_watermark
            out.append(Outcome({"itl.p99.9": tail, "ttft.p50": price, "tokens_per_s": 100.0}))
        return out


@pytest.fixture(scope="module")
def base() -> Base:
    model = fit(planted())
    with runner(model.engine, workers=1) as run:
        return base_of(model, run)


def test_a_search_finds_the_cheapest_that_meets_the_goal(base: Base) -> None:
    bowl = Bowl()
    found = search(base, bowl, read_goal("itl.p99.9 < 50ms"), "ttft.p50", count=300)
    assert 300 <= bowl.calls == len(found.seen) <= 330
    assert found.seen[0].change == {}
    assert found.best is not None
    best = found.seen[found.best]
    assert best.outcome["itl.p99.9"] <= 50
    assert best.change["gc_freeze"]
    every = [s for s in found.seen if s.outcome["itl.p99.9"] <= 50]
    least = min(s.outcome["ttft.p50"] for s in every)
    assert best.outcome["ttft.p50"] <= 1.02 * least
    alike = [s for s in every if s.outcome["ttft.p50"] <= 1.02 * least]
    assert len(best.change) == min(len(s.change) for s in alike) <= 3  # this bowl has three knobs
    assert best.outcome["ttft.p50"] < 49
    front = [(found.seen[i].outcome["itl.p99.9"], found.seen[i].outcome["ttft.p50"]) for i in found.front]
    assert front == sorted(front)
    assert [p for _, p in front] == sorted((p for _, p in front), reverse=True)
    again = search(base, Bowl(), read_goal("itl.p99.9 < 50ms"), "ttft.p50", count=300)
    assert again == found


def test_a_run_that_meets_its_goal_as_it_is_needs_no_change(base: Base) -> None:
    goal = read_goal("itl.p99.9 < 10s")
    found = search(base, lambda jobs: [Outcome({"itl.p99.9": 9.0, "ttft.p50": 5.0}) for _ in jobs], goal, "ttft.p50")
    assert found.best == 0
    told = answer(Told(base, [], None, goal.name, found))
    assert told.startswith("As recorded it gives itl.p99.9 < 10000 ms already, at ttft.p50 5")
    assert told.endswith("settings gives that at less.")


def test_the_ends_of_intervals_rise_with_the_percentile() -> None:
    figures = {"a": Figure(1.0, 0.9, 1.6), "b": Figure(2.0, 1.2, 2.1), "c": Figure(3.0, 0.8, 9.0)}
    _in_order(figures, ["a", "b", "c"])
    assert figures == {"a": Figure(1.0, 0.9, 1.6), "b": Figure(2.0, 1.2, 2.1), "c": Figure(3.0, 1.2, 9.0)}
    figures = {"a": Figure(1.0, 0.9, 4.0), "b": Figure(2.0, 1.2, 2.1)}
    _in_order(figures, ["a", "b"])
    assert figures["a"].high == 2.1


def test_a_setting_that_holds_a_list_breaks_behind_a_comma() -> None:
    rows = [("capture_sizes=1,2,4,8,16,24,32,40,48", "1,234"), ("word " * 9, "1")]
    told = grid(("change", "x" * 60), rows)
    assert max(map(len, told)) <= 80
    folded = [line.split()[0] for line in told[2:] if "=" in line or line.lstrip()[:1].isdigit()]
    assert "".join(folded) == "capture_sizes=1,2,4,8,16,24,32,40,48"
    assert all(piece.endswith(",") for piece in folded[:-1])


def test_a_goal_that_nothing_meets_is_not_found(base: Base) -> None:
    found = search(base, Bowl(), read_goal("itl.p99.9 < 1ms"), "ttft.p50", count=40)
    assert found.best is None
    assert found.front


def test_what_is_fixed_is_not_searched(base: Base) -> None:
    found = search(base, Bowl(), read_goal("itl.p99.9 < 50ms"), "ttft.p50", count=60, fixed={"token_budget": 512})
    assert {s.change["token_budget"] for s in found.seen} == {512}


def test_the_best_order_stacks_fixes_until_none_is_worth_it(base: Base) -> None:
    stages = best_order(base, Bowl(), "itl.p99.9")
    names = [set(s.change) for s in stages]
    assert all(a < b for a, b in pairwise(names))
    values = [s.outcome["itl.p99.9"] for s in stages]
    assert values == sorted(values, reverse=True)
