"""`stallbook accuracy` around a stand-in for the run: what is asked of it, what is printed and kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inject_fakes import rehearse

from stallbook.cli import child, common, main
from stallbook.errors import StallbookError
from stallbook.inject import KINDS, Task
from stallbook.inject.truth import Truth, Window


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Task]:
    """Runs are rehearsed on a fake clock; a seed of 9 is interrupted, and one of 8 dies."""
    tasks: list[Task] = []

    def run_command(command: Sequence[str], threads: int, tick: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        task = Task.from_json(command[command.index("--task") + 1])
        tasks.append(task)
        assert threads == 1
        log, place = (Path(command[command.index(option) + 1]) for option in ("--log", "--truth"))
        assert not log.exists()
        assert not place.exists()
        if task.seed >= 8:
            log.mkdir()
            (log / "manifest.json").write_text("{}")
            place.write_text("{}")
            if task.seed == 8:
                raise StallbookError("demo-died", "the demonstrator died", "see why")
            return {"interrupted": True}
        tick({"planted": 1, "of": task.total})
        truth = rehearse(log, monkeypatch, task)
        truth.save(place)
        return {"planted": len(truth.faults)}

    monkeypatch.setattr(child, "run_command", run_command)
    monkeypatch.chdir(tmp_path)
    return tasks


def test_text(asked: list[Task], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["accuracy", "--seeds", "1-2", "--faults", "2", "--kinds", "scheduler,other:kv"]) == 0
    assert asked == [Task(seed, 2, ("scheduler", "hold")) for seed in (1, 2)]
    out, err = capsys.readouterr()
    assert "scored over 2 seeds" in out
    assert "Macro F1 1.000, 1.000 at the lowest seed." in out
    assert err.splitlines() == ["planting, seed 1 ...", "planting, seed 2 ..."]
    assert list(tmp_path.iterdir()) == []


def test_json_and_what_is_kept(asked: list[Task], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = ["accuracy", "--seeds", "3", "--faults", "1", "--kinds", "sched", "--out", "kept", "--format", "json"]
    assert main(args) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["worst"] == {"cause": "sched", "f1": 1.0}
    assert told == json.loads((tmp_path / "kept" / "accuracy.json").read_text())
    assert names(tmp_path / "kept") == {"seed-3.stall", "seed-3.truth.json", "accuracy.json", "accuracy.txt"}
    assert main(args) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*args, "--force"]) == 0


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


SCHED = ["accuracy", "--faults", "1", "--kinds", "sched", "--out", "kept", "--seeds"]


@pytest.mark.parametrize("name", ["seed-3.truth.json", "accuracy.json", "accuracy.txt"])
def test_nothing_of_an_earlier_measurement_is_overwritten_unasked(
    name: str, asked: list[Task], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    earlier = tmp_path / "kept" / name
    earlier.write_text("earlier")
    assert main([*SCHED, "3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"kept/{name}: is there already" in line
    assert (asked, names(tmp_path / "kept"), earlier.read_text()) == ([], {name}, "earlier")
    assert main([*SCHED, "3", "--force"]) == 0
    assert earlier.read_text() != "earlier"


def test_force_removes_nothing_where_it_may_not_remove_all(
    asked: list[Task], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*SCHED, "3"]) == 0
    (tmp_path / "kept" / "seed-4.stall").mkdir()
    before = names(tmp_path / "kept")
    assert main([*SCHED, "3-4", "--force"]) == 2
    assert "is no log of stallbook" in capsys.readouterr().err
    assert names(tmp_path / "kept") == before


def test_a_run_that_was_interrupted_does_not_pass_for_a_finished_one(
    asked: list[Task], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for _ in range(2):  # the same command works again
        assert main([*SCHED, "9"]) == 130
        assert capsys.readouterr().err.endswith("stallbook: interrupted; no run was finished\n")
        assert names(tmp_path / "kept") == set()
    assert main([*SCHED, "3,9"]) == 130
    assert capsys.readouterr().err.endswith("stallbook: interrupted; 1 of 2 runs is finished and in kept\n")
    assert names(tmp_path / "kept") == {"seed-3.stall", "seed-3.truth.json"}
    assert main([*SCHED, "3,9"]) == 2
    assert main([*SCHED, "3,4,9", "--force"]) == 130
    assert capsys.readouterr().err.endswith("stallbook: interrupted; 2 of 3 runs are finished and in kept\n")


def test_nothing_stays_of_a_run_that_died(
    asked: list[Task], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*SCHED, "3,8"]) == 2
    assert "the demonstrator died" in capsys.readouterr().err
    assert names(tmp_path / "kept") == {"seed-3.stall", "seed-3.truth.json"}


def test_what_a_crash_left_is_in_nobody_s_way(asked: list[Task], tmp_path: Path) -> None:
    part = tmp_path / "kept" / "seed-3.part.stall"
    part.mkdir(parents=True)
    (part / "manifest.json").write_text("{}")
    part.with_name("seed-3.part.truth.json").write_text("{")
    assert main([*SCHED, "3"]) == 0
    assert names(tmp_path / "kept") == {"seed-3.stall", "seed-3.truth.json", "accuracy.json", "accuracy.txt"}


def test_interrupted_while_it_counts(
    asked: list[Task], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(common, "partition_of", interrupted)
    assert main([*SCHED, "3"]) == 130
    assert capsys.readouterr().err.endswith("stallbook: interrupted; 1 of 1 runs is finished and in kept\n")


def test_what_could_not_be_judged_is_said(
    asked: list[Task], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Truth.load

    def disturbed(path: Path) -> Truth:
        truth = load(path)
        return replace(truth, foreign=(Window(truth.t0, truth.t1, truth.t1 - truth.t0),))

    monkeypatch.setattr(Truth, "load", disturbed)
    args = ["accuracy", "--seeds", "3", "--faults", "1", "--kinds", "sched,gc"]
    assert main(args) == 1  # nothing at all was measured
    out, err = capsys.readouterr()
    assert err.splitlines()[1:] == [
        "stallbook: no gap could be judged of gc, sched: no macro F1; "
        "plant more --faults or --seeds, and run nothing else meanwhile"
    ]
    assert "Macro F1 -.\nNo gap could be judged of: gc, sched; so there is no macro F1.\n" in out
    assert main([*args, "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["unjudged"], told["macro_f1"], told["macro_f1_range"]) == (["gc", "sched"], None, None)


def test_everything_by_default(asked: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", "--seeds", "9"]) == 130
    assert asked == [Task(9, 40, tuple(KINDS))]
    assert capsys.readouterr().err.endswith("stallbook: interrupted\n")


def test_a_kind_that_does_not_exist(asked: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", "--kinds", "gremlins"]) == 2
    assert "there is no fault 'gremlins'" in capsys.readouterr().err
    assert asked == []
