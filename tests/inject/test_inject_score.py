"""The score on truth made by hand, each number worked out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stallbook as sb
from stallbook.inject import KINDS
from stallbook.inject.report import to_object, to_text
from stallbook.inject.score import CauseScore, Score, judge, score
from stallbook.inject.truth import Planted, Truth, Window
from stallbook.partition import Partition

MS = 1_000_000
STEP = 10 * MS


@pytest.fixture(scope="module")
def p(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    """Two requests, twenty steps of 10 ms that emit at their end: 38 gaps. In steps 4 and 8 the scheduler takes 8 ms,
    in step 12 a collection does; b is held from step 15 to 18, 30 ms."""
    lines: list[dict[str, object]] = [{"stallbook": 1, "engine": "hand", "records": ["segments", "gc", "holds"]}]
    for i in range(20):
        t = i * STEP
        lines.append({"e": "step", "id": i, "t0": t, "t1": t + STEP})
        if i in (4, 8):
            lines.append({"e": "segment", "step": i, "name": "sched", "t0": t, "t1": t + 8 * MS})
        if i == 12:
            lines.append({"e": "gc", "t0": t, "t1": t + 8 * MS, "generation": 2})
        tokens = {"a": 1} if 15 <= i < 18 else {"a": 1, "b": 1}
        lines.append({"e": "emit", "step": i, "t": t + STEP, "tokens": tokens})
    lines.append({"e": "hold", "request": "b", "kind": "kv", "t0": 15 * STEP, "t1": 18 * STEP})
    path = tmp_path_factory.mktemp("hand") / "hand.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return sb.partition(sb.open(path))


def everybody(step: int, ns: int = 8 * MS) -> Window:
    return Window(step * STEP, step * STEP + ns, ns)


SCHED = (Planted("scheduler", "sched", (everybody(4),)), Planted("scheduler", "sched", (everybody(8),)))
GC = Planted("collection", "gc", (everybody(12),))
HOLD = Planted("hold", "other:kv", (Window(15 * STEP, 18 * STEP, 3 * STEP, "b"),))
ALL = Truth(0, 20 * STEP, (*SCHED, GC, HOLD))


def numbers(found: Score) -> dict[str, tuple[int, int, int]]:
    return {c: (s.true_positive, s.false_positive, s.false_negative) for c, s in found.causes.items()}


def test_all_right(p: Partition) -> None:
    found = score(ALL, p)
    assert numbers(found) == {"gc": (2, 0, 0), "sched": (4, 0, 0), "other:kv": (1, 0, 0)}
    assert found.calm == 35 - 7
    assert found.alarms == {}
    assert found.left_out == {"between": 0, "competing": 0, "disturbed": 0}
    assert found.misses == ()
    assert found.macro_f1 == 1.0
    assert [float(one.errors.max()) for one in found.causes.values()] == [0.0, 0.0, 0.0]
    assert found.causes["sched"].faults == 2


def test_what_was_planted_and_not_found_lowers_recall_alone(p: Partition) -> None:
    truth = replace(ALL, faults=(*ALL.faults, Planted("scheduler", "sched", (everybody(6),))))
    found = score(truth, p)
    assert numbers(found) == {"gc": (2, 0, 0), "sched": (4, 0, 2), "other:kv": (1, 0, 0)}
    one = found.causes["sched"]
    assert (one.precision, one.recall, one.f1) == (1.0, 4 / 6, 0.8)
    assert sorted(one.errors.tolist()) == [0.0] * 4 + [1.0] * 2
    assert found.alarms == {}
    (miss,) = found.misses
    assert (miss.step, miss.right, miss.told, miss.planted_ns) == (6, "sched", "clean", 8 * MS)


def test_what_was_found_and_not_planted_lowers_precision_alone(p: Partition) -> None:
    found = score(replace(ALL, faults=(SCHED[0], GC, HOLD)), p)
    assert numbers(found) == {"gc": (2, 0, 0), "sched": (2, 2, 0), "other:kv": (1, 0, 0)}
    assert (found.causes["sched"].precision, found.causes["sched"].recall) == (0.5, 1.0)
    assert found.alarms == {"sched": 2}


def test_a_cause_for_another_lowers_one_s_recall_and_the_other_s_precision(p: Partition) -> None:
    wrong = Planted("collection", "gc", (everybody(8),))
    found = score(replace(ALL, faults=(SCHED[0], wrong, GC, HOLD)), p)
    assert numbers(found) == {"gc": (2, 0, 2), "sched": (2, 2, 0), "other:kv": (1, 0, 0)}
    assert found.alarms == {}


def test_the_error_of_the_charged_time(p: Partition) -> None:
    truth = replace(ALL, faults=(Planted("scheduler", "sched", (everybody(4, 10 * MS),)), SCHED[1], GC, HOLD))
    errors = score(truth, p).causes["sched"].errors
    assert sorted(errors.round(6).tolist()) == [0.0, 0.0, 0.2, 0.2]


def test_what_a_cause_takes_anyway_is_no_error(tmp_path: Path) -> None:
    """Scheduling takes 1 ms of each step, 2 ms of one; 8 ms more are planted in step 4."""
    lines: list[dict[str, object]] = [{"stallbook": 1, "engine": "hand", "records": ["segments"]}]
    for i in range(10):
        t, busy = i * STEP, {4: 9, 6: 2}.get(i, 1) * MS
        lines.append({"e": "step", "id": i, "t0": t, "t1": t + STEP})
        lines.append({"e": "segment", "step": i, "name": "sched", "t0": t, "t1": t + busy})
        lines.append({"e": "emit", "step": i, "t": t + STEP, "tokens": {"a": 1}})
    path = tmp_path / "anyway.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    planted = Planted("scheduler", "sched", (Window(4 * STEP + MS, 4 * STEP + 9 * MS, 8 * MS),))
    found = score(Truth(0, 10 * STEP, (planted,)), sb.partition(sb.open(path)))
    assert numbers(found) == {"sched": (1, 0, 0)}
    assert found.causes["sched"].errors.tolist() == [0.0]


def out(found: Score) -> dict[str, int]:
    return {reason: gaps for reason, gaps in found.left_out.items() if gaps}


@pytest.mark.parametrize(
    ("windows", "reason"),
    [
        ((Planted("scheduler", "sched", (everybody(2, 2 * MS),)),), "between"),
        ((Planted("repeat", "slow", (everybody(4, 6 * MS),)),), "competing"),
        ((), "disturbed"),
    ],
)
def test_what_is_left_out(p: Partition, windows: tuple[Planted, ...], reason: str) -> None:
    foreign = (Window(4 * STEP, 5 * STEP, STEP // 50),) if reason == "disturbed" else ()
    found = score(replace(ALL, faults=(*ALL.faults, *windows), foreign=foreign), p)
    assert {k: n for k, n in found.left_out.items() if n} == {reason: 2}
    assert found.causes["sched"].false_negative == found.causes["sched"].false_positive == 0


@pytest.mark.parametrize("kind", ["foreign", "hindered"])
@pytest.mark.parametrize(("ns", "gone"), [(STEP // 50 - 1, {}), (STEP // 50, {"disturbed": 2})])
def test_a_gap_is_disturbed_from_a_fiftieth_on(p: Partition, kind: str, ns: int, gone: dict[str, int]) -> None:
    windows = (Window(4 * STEP, 5 * STEP, ns),)
    truth = replace(ALL, foreign=windows) if kind == "foreign" else replace(ALL, hindered=windows)
    found = score(truth, p)
    assert out(found) == gone
    assert numbers(found)["sched"] == ((2, 0, 0) if gone else (4, 0, 0))


def test_what_disturbs_adds_up(p: Partition) -> None:
    half = (Window(4 * STEP, 5 * STEP, STEP // 100),)
    assert out(score(replace(ALL, foreign=half, hindered=half), p)) == {"disturbed": 2}


@pytest.mark.parametrize(
    ("ns", "step", "right"),
    [
        (1_200_000, 4 * MS, "sched"),  # affected: from 1.2 ms ...
        (1_199_999, 3 * MS, "between"),
        (3_000_000, 10 * MS, "sched"),  # ... and 30% on
        (2_999_999, 10 * MS, "between"),
        (499_999, 10 * MS, "clean"),  # calm: below 0.5 ms ...
        (500_000, 10 * MS, "between"),
        (399_999, 4 * MS, "clean"),  # ... and 10%
        (400_000, 4 * MS, "between"),
    ],
)
def test_the_borders(ns: int, step: int, right: str, tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [{"stallbook": 1, "engine": "hand", "records": ["segments"]}]
    for i in range(3):
        lines.append({"e": "step", "id": i, "t0": i * step, "t1": (i + 1) * step})
        lines.append({"e": "emit", "step": i, "t": (i + 1) * step, "tokens": {"a": 1}})
    path = tmp_path / "border.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    planted = Planted("scheduler", "sched", (Window(step, step + ns, ns),))
    judged = judge(Truth(0, 3 * step, (planted,)), sb.partition(sb.open(path)))
    names = {-2: "between", -1: "clean", 0: "sched"}
    assert [names[one] for one in judged.right.tolist()] == [right, "clean"]
    assert judged.reasons["between"] == (right == "between")


@pytest.mark.parametrize(("ns", "gone"), [(5_600_000, {}), (5_600_001, {"competing": 2})])
def test_causes_compete_above_seven_tenths(p: Partition, ns: int, gone: dict[str, int]) -> None:
    assert out(score(replace(ALL, faults=(*ALL.faults, Planted("repeat", "slow", (everybody(4, ns),)))), p)) == gone


def test_a_request_s_own_window_takes_its_time_from_everybody_s(p: Partition) -> None:
    busy = Planted("scheduler", "sched", tuple(everybody(i) for i in (4, 8, 16, 17)))
    judged = judge(replace(ALL, faults=(busy, GC, HOLD)), p)
    b = (p.gaps.t1 - p.gaps.t0).argmax()
    assert dict(zip(judged.causes, judged.planted[:, b].tolist(), strict=True)) == {
        "gc": 0, "sched": 0, "other:kv": 3 * STEP
    }  # fmt: skip


def test_only_the_time_that_the_journal_watched_is_judged(p: Partition) -> None:
    found = score(replace(ALL, t0=6 * STEP), p)
    assert numbers(found)["sched"] == (2, 0, 0)


@pytest.mark.parametrize(("inside", "gaps"), [((0, 0), 4), ((1, 0), 2), ((0, -1), 2), ((1, -1), 0)])
def test_a_gap_that_the_journal_saw_in_part_is_not_judged(p: Partition, inside: tuple[int, int], gaps: int) -> None:
    """Of step 4 and of step 8 all but a nanosecond."""
    first, last = inside
    found = score(replace(ALL, t0=4 * STEP + first, t1=9 * STEP + last), p)
    assert numbers(found)["sched"] == (gaps, 0, 0)
    assert found.calm == 2 * 3
    assert out(found) == {}


ALL_OF_4 = (Window(4 * STEP, 5 * STEP, STEP),)


def test_a_cause_of_which_no_gap_could_be_judged_leaves_no_macro_f1(p: Partition) -> None:
    found = score(replace(ALL, faults=(SCHED[0], GC, HOLD), foreign=ALL_OF_4), p)
    assert (found.unjudged, found.macro_f1) == (("sched",), None)
    assert found.causes["sched"].faults == 1


@pytest.mark.parametrize("where", ["failed", "unavailable"])
def test_a_cause_that_could_not_be_planted_is_unjudged_too(p: Partition, where: str) -> None:
    truth = replace(ALL, failed={"quota": 3}) if where == "failed" else replace(ALL, unavailable={"quota": "why"})
    found = score(truth, p)
    assert (found.unjudged, found.macro_f1, numbers(found)["os"]) == (("os",), None, (0, 0, 0))
    both = replace(truth, failed={"scheduler": 1}, unavailable={})  # others of this cause could be
    assert (score(both, p).unjudged, score(both, p).macro_f1) == ((), 1.0)


def test_a_seed_that_could_not_be_judged_leaves_no_range(p: Partition) -> None:
    disturbed = score(replace(ALL, faults=(SCHED[0], GC, HOLD), foreign=ALL_OF_4), p)
    told = to_object({1: score(ALL, p), 2: disturbed}, {}, {})
    assert (told["unjudged"], told["macro_f1_range"]) == ([], None)
    assert told["macro_f1"] == pytest.approx((1 + 1 + 8 / 10) / 3)
    assert (told["causes"]["sched"]["f1_range"], told["causes"]["gc"]["f1_range"]) == (None, [1.0, 1.0])
    assert "Macro F1 0.933, - at the lowest seed." in to_text(told)


def test_scores_add_up(p: Partition) -> None:
    good, bad = score(ALL, p), score(replace(ALL, faults=(SCHED[0], GC)), p)
    both = good + bad
    assert numbers(both) == {"gc": (4, 0, 0), "sched": (6, 2, 0), "other:kv": (1, 0, 0)}
    assert both.calm == good.calm + bad.calm
    assert both.alarms == {"sched": 2, "other:kv": 1}


def test_the_object_has_the_promised_keys(p: Partition) -> None:
    told = to_object({1: score(ALL, p), 2: score(replace(ALL, faults=(SCHED[0], GC, HOLD)), p)}, {"quota": "why"}, {})
    assert json.loads(json.dumps(told)) == told
    assert told["worst"] == {"cause": "sched", "f1": 12 / 14}
    assert told["macro_f1"] == pytest.approx((1 + 1 + 12 / 14) / 3)
    assert told["macro_f1_range"] == [pytest.approx((2 + 4 / 6) / 3), 1.0]
    assert {"faults", "precision", "recall", "f1", "time_error_median", "time_error_p95"} <= set(told["causes"]["gc"])
    assert told["causes"]["sched"]["f1_range"] == [4 / 6, 1.0]


def test_the_figures_of_a_cause() -> None:
    """Errors of 0 to 1 at one seed, 0 to 2 at the other; told for it rightly 6 and 8 times."""
    one = CauseScore(5, 6, 2, 4, np.arange(101) / 100)
    two = CauseScore(5, 8, 0, 0, np.arange(101) / 50)
    told = to_object({1: Score({"gc": one}, 10, {}, {}), 2: Score({"gc": two}, 10, {}, {})}, {}, {})["causes"]["gc"]
    both = np.sort([*one.errors, *two.errors])
    assert told == {
        "faults": 10, "gaps": 18, "precision": 14 / 16, "recall": 14 / 18, "f1": 28 / 34, "f1_range": [12 / 18, 1.0],
        "time_error_median": pytest.approx((both[100] + both[101]) / 2),
        "time_error_p95": pytest.approx(both[190] + 0.95 * (both[191] - both[190])),
        "time_error_median_range": [pytest.approx(0.5), pytest.approx(1.0)],
        "time_error_p95_range": [pytest.approx(0.95), pytest.approx(1.9)],
    }  # fmt: skip


def test_the_text_fits_a_terminal_and_never_rounds_up_to_one(p: Partition) -> None:
    told = to_object({1: score(replace(ALL, faults=(SCHED[0], GC, HOLD)), p)}, {"quota": "no control groups"}, {})
    told["unjudged"] = list(KINDS.values())
    told["macro_f1"] = 0.99996
    text = to_text(told)
    assert max(map(len, text.splitlines())) <= 80
    assert "Macro F1 0.999." in text
    assert "sched                 1       2" in text
    assert "told a cause: sched 2" in text
    assert "Not available here: quota (no control groups)." in text


def test_no_fault_at_all(p: Partition) -> None:
    told = to_object({1: score(Truth(0, 20 * STEP), p)}, {}, {})
    assert (told["macro_f1"], told["worst"], told["causes"]) == (None, None, {})
    assert "Macro F1 -." in to_text(told)
