"""Each kind of fault on a fake clock: what it plants is found, and charged in full to the right cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from inject_fakes import MS, rehearse

import stallbook as sb
from stallbook.errors import StallbookError
from stallbook.inject import KINDS, Task
from stallbook.inject.faults import FAULTS
from stallbook.inject.score import judge, score
from stallbook.inject.task import choose
from stallbook.inject.truth import Truth

INSIDE = tuple(kind for kind in KINDS if kind not in ("competitor", "quota"))


def test_every_kind_has_a_class_and_a_cause() -> None:
    assert set(FAULTS) == set(KINDS)


@pytest.mark.parametrize("kind", INSIDE)
def test_a_kind_is_found_and_nothing_else_is(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = rehearse(tmp_path / "x.stall", monkeypatch, Task(3, 6, (kind,)))
    assert [fault.kind for fault in truth.faults] == [kind] * 6
    p = sb.partition(sb.open(tmp_path / "x.stall"))
    found = score(truth, p)
    one = found.causes[KINDS[kind]]
    assert (one.faults, one.precision, one.recall, found.alarms, found.misses) == (6, 1.0, 1.0, {}, ())
    assert found.reconciled
    assert one.true_positive >= 6
    assert found.calm > 5000
    assert float(one.errors.max()) < 0.05


def test_all_kinds_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = rehearse(tmp_path / "x.stall", monkeypatch, Task(1, 2, INSIDE))
    found = score(truth, sb.partition(sb.open(tmp_path / "x.stall")))
    assert found.macro_f1 == 1.0
    assert set(found.causes) == {KINDS[kind] for kind in INSIDE}
    assert found.left_out["competing"] == found.left_out["disturbed"] == 0


def test_the_rules_of_the_post_do_not_know_what_it_has_no_cause_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = rehearse(tmp_path / "x.stall", monkeypatch, Task(1, 2, ("burst", "scheduler", "left-out")))
    found = score(truth, sb.partition(sb.open(tmp_path / "x.stall"), rules="post"))
    assert found.causes["prefill"].recall == 1.0
    assert found.causes["sched"].recall == found.causes["unscheduled"].recall == 0.0


def test_the_same_seed_plants_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, other = (
        rehearse(tmp_path / f"{i}.stall", monkeypatch, Task(seed, 2, INSIDE)) for i, seed in enumerate((5, 5, 6))
    )
    assert one == two != other


def test_a_request_s_own_fault_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = rehearse(tmp_path / "x.stall", monkeypatch, Task(2, 5, ("hold",)))
    p = sb.partition(sb.open(tmp_path / "x.stall"))
    right = judge(truth, p).right
    assert (right == 0).sum() == 5
    assert (p.gaps.t1 - p.gaps.t0)[right == 0].min() > 12 * MS


def test_truth_survives_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = rehearse(tmp_path / "x.stall", monkeypatch, Task(2, 1, INSIDE))
    truth.save(tmp_path / "truth.json")
    assert Truth.load(tmp_path / "truth.json") == truth


def test_kinds_are_chosen_by_name_or_cause() -> None:
    assert choose(["os", "burst"]) == ("burst", "competitor", "quota")
    assert choose([""]) == tuple(KINDS)
    with pytest.raises(StallbookError, match="choose among burst"):
        choose(["bursts"])
    assert Task.from_json(Task(7, 3, ("hold",)).to_json()) == Task(7, 3, ("hold",))
