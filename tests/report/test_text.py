"""The text report, held against kept files that a person has read."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from golden_text import check
from report_standin import BASELINE_RUN, MS, Fit, Rows, a_run, ints, partition, stalls, waits

from stallbook.causes import POST
from stallbook.counters import Speed
from stallbook.report.events import _settings
from stallbook.report.model import build
from stallbook.report.text import answer, dumps
from stallbook.report.trust import rows
from stallbook.run import Emissions, Evictions, Pauses, Probes
from stallbook.stalls import Stall

FULL = (*POST[:-1], "residual", "os", "slow", "pad", "other:kv")
NONE = ints()


WORST = (
    Stall("r9", 14_630 * MS, 2_400 * MS, 12, {"gc": 2_300 * MS, "fwd": 90 * MS, "pad": 10 * MS}, "gc", 12, 12),
    Stall("r2", 70 * MS, 900 * MS, 1, {"preempt": 860 * MS, "fwd": 40 * MS}, "preempt", 12, 1),
    Stall("r\x1b", 90 * MS, 800 * MS, 3, {"other:kv": 800 * MS}, "other:kv", 12, 4),
    Stall("r4", 1_200_000 * MS, 300 * MS, 1, {"residual": 300 * MS}, "clean", 1, 1),
    Stall("r5", 95 * MS, 28 * MS, 1, {"prefill": 20 * MS, "fwd": 8 * MS}, "prefill", 2, 2),
    Stall("r6", 95 * MS, 27 * MS, 1, {"prefill": 20 * MS, "fwd": 7 * MS}, "prefill", 2, 2),
)
"""The last is shorter than two medians."""


def a_full_partition() -> Any:
    rows = Rows(
        [(12, 9_000, {"pad": 1, "residual": 0.2}), (40, 80, {"os": 25, "slow": 3}), (300, 20, {"other:kv": 280})],
        causes=FULL,
        context={"fwd": 900},
    )
    abilities = {**dict.fromkeys(FULL, "placed"), "tok": "not recorded", "os": "bounded", "unscheduled": "not recorded"}
    steps = replace(a_run().steps, run_delay=ints(5, 5, 5, 5))
    run = a_run(
        probes=Probes(NONE, NONE), facts={}, notes={"merged_pauses": 3, "emissions_in_eviction": 1}, steps=steps
    )
    fit = Fit("robust", 836_000.0, 99_000.0, 202.0, 1538, 0.05, best=0.4, note="")
    return partition(
        rows, run, rules="full", abilities=abilities, baseline=fit, notes=dict(run.notes),
        stalls=stalls(*WORST, count=7), waits=waits(("fwd", "residual", "queue"), (10, 0, 5), (20, 1, 979), (5, 0, 15)),
    )  # fmt: skip


def nothing_recorded() -> Any:
    run = a_run(
        records=frozenset(), pauses=Pauses(NONE, NONE, NONE, NONE), evictions=Evictions(NONE, NONE, NONE, NONE, NONE),
        emissions=Emissions(NONE, NONE, NONE), probes=Probes(NONE, NONE), facts={}, engine="", path="", wall_ns=0,
    )  # fmt: skip
    steps = run.steps
    unknown = type(steps)(
        **{**vars(steps), "graph": steps.graph * 0, "decode_tokens": steps.graph * 0 - 1, "emit": steps.emit}
    )
    none = Fit("none", 0.0, 0.0, 0.0, 0, float("nan"), "no captured step")
    abilities = dict.fromkeys(POST, "not recorded")
    return partition(Rows([]), type(run)(**{**vars(run), "steps": unknown}), baseline=none, abilities=abilities)


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        ("post.txt", [partition(BASELINE_RUN)]),
        ("full.txt", [a_full_partition()]),
        ("nothing-recorded.txt", [nothing_recorded()]),
        ("two-runs.txt", [partition(BASELINE_RUN), partition(Rows([(5, 100, {})]), a_run(path="a/b/demo-2.stall"))]),
    ],
)
def test_report(name: str, partitions: list[Any]) -> None:
    text = dumps([build(p) for p in partitions])
    assert max(map(len, text.splitlines())) <= 80
    check(name, text)


def test_brief() -> None:
    check("brief.txt", dumps([build(partition(BASELINE_RUN))] * 3, brief=True))


def test_the_first_line_is_the_answer() -> None:
    assert answer(build(partition(BASELINE_RUN))).startswith("59% of the tail's time is preempt; p99 31.0 ms")


def test_a_tail_that_is_the_forward_pass() -> None:
    assert answer(build(partition(Rows([(5, 100, {})])))).startswith("100% of the tail's time is the forward pass")


def test_what_is_no_longer_than_usual_is_no_stall() -> None:
    text = dumps([build(partition(BASELINE_RUN, stalls=stalls(WORST[-1])))])
    assert "worst stalls" not in text
    assert "none over 140 ms" in text
    text = dumps([build(partition(BASELINE_RUN, stalls=stalls(*WORST[3:], count=1)))])
    assert "request r4" in text
    assert "request r6" not in text


def test_no_more_than_five_stalls_are_shown() -> None:
    text = dumps([build(partition(BASELINE_RUN, stalls=stalls(*WORST[:2] * 4, count=8)))])
    assert text.count("live streams") == 5


def test_only_a_baseline_far_above_the_best_is_held_against_it() -> None:
    told = {best: dumps([build(partition(BASELINE_RUN, baseline=Fit(best=best)))]) for best in (0.3, 0.7)}
    assert "at up to 3.3 times its best" in told[0.3]
    assert "--rules full" in told[0.3]
    assert "Against the run's best" not in told[0.7]


def test_first_tokens_that_were_never_admitted_are_counted() -> None:
    p = partition(BASELINE_RUN, rules="full", waits=waits(("fwd",), (10,), (20,), never_admitted=1))
    assert "Never admitted on record: 1;" in dumps([build(p)])
    assert "first token's time" not in dumps([build(partition(BASELINE_RUN))])


def test_first_tokens_that_do_not_add_up_are_said_first() -> None:
    broken = waits(("fwd",), (10,), (20,))
    broken.t1[0] += 3
    text = dumps([build(partition(BASELINE_RUN, rules="full", waits=broken))])
    assert "do not add up" in text.splitlines()[1]
    assert "BROKEN: off by up to 3 ns, 0 negative part" in text


def test_no_gaps_and_gaps_without_length() -> None:
    assert "no gaps" in answer(build(partition(Rows([])))).lower()
    assert "0 ns" in answer(build(partition(Rows([(0, 5, {})]))))
    assert "leads" in dumps([build(partition(Rows([(0, 5, {})])))])


def test_parts_that_do_not_add_up_are_said_first() -> None:
    broken = SimpleNamespace(max_error_ns=7, negative_parts=1, skipped_steps_unexplained=4, gaps_skipping=2)
    text = dumps([build(partition(BASELINE_RUN, reconcile=broken))])
    assert "do not add up" in text.splitlines()[1]
    assert "BROKEN: off by up to 7 ns, 1 negative part" in text
    assert "4 emitting steps passed a request by" in " ".join(text.split())


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ({"cut_bytes": 70, "corrupt_bytes": 7}, "NOT WHOLE: 77 bytes of it could not be read"),
        ({"torn_tail_bytes": 12}, "ends in the middle of a record"),
        ({"unknown_events": 3}, ""),
    ],
)
def test_a_log_that_is_not_whole_says_so_at_the_top(notes: dict[str, int], said: str) -> None:
    text = " ".join(dumps([build(partition(BASELINE_RUN, a_run(notes=notes)))]).split())
    top = text.partition("How far to trust this")[0]
    assert said in top
    assert bool(said) == ("NOT WHOLE" in top or "middle of a record" in top)


def test_hostile_names_do_not_reach_the_terminal() -> None:
    run = a_run(engine="x\x1b[31m\ny", path="[red]a[/red]\x07.stall")
    text = dumps([build(partition(BASELINE_RUN, run))] * 2)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]a[/red]" in text


def test_many_long_pauses_are_cut_short() -> None:
    t = ints(*range(20)) * 1_000 * MS
    pauses = Pauses(t, t + (1 + ints(*range(20))) * MS, ints(*[2] * 20), ints(*[0] * 20))
    assert "and 11 shorter" in dumps([build(partition(BASELINE_RUN, a_run(pauses=pauses)))])


def test_figures_side_by_side_are_never_cut() -> None:
    run = a_run(path="a-very-long-name-of-a-run-with-its-seed__s1.stall")
    rows = Rows(
        [(12_345, 990, {}), (1_234_567.8, 10, {"other:a-long-name-here": 1e6})],
        causes=(*POST, "other:a-long-name-here"),
    )
    text = dumps([build(partition(rows, run))] * 2, brief=True)
    assert "…" not in text
    assert text.count("1,234,568") == 4  # p99.9 and the longest, in both


@pytest.mark.parametrize(
    ("spread", "last", "words"),
    [(0.05, 100.0, "held still:"), (0.55, 100.0, "no drift, but noisy:"), (0.05, 130.0, "DID NOT HOLD STILL:")],
)
def test_a_machine_that_was_disturbed_did_not_hold_still(spread: float, last: float, words: str) -> None:
    r = replace(build(a_full_partition()), speed=Speed(300, 100.0, spread, (100.0, 100.0, last)))
    assert dict(rows(r))["machine"].startswith(words)


def test_settings_that_do_not_fit_are_counted_and_none_is_cut() -> None:
    config = {f"setting_{i:02}": 10**i for i in range(30)}
    told = _settings(config)
    shown, _, more = told.partition(", and ")
    assert all(one in {f"{key} {value}" for key, value in config.items()} for one in shown.split(", "))
    assert more == f"{30 - len(shown.split(', '))} more"
    assert _settings({"rate": 7.5, "path": "x" * 99, "on": True}) == "rate 7.5, on True"
