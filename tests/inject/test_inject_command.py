"""`stallbook accuracy` around a stand-in for the run: what is asked of it, what is printed and kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from inject_fakes import rehearse

from stallbook.cli import child, main
from stallbook.inject import KINDS, Task


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Task]:
    """Runs are rehearsed on a fake clock; a seed of 9 is interrupted."""
    tasks: list[Task] = []

    def run_command(command: Sequence[str], threads: int, tick: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        task = Task.from_json(command[command.index("--task") + 1])
        tasks.append(task)
        assert threads == 1
        if task.seed == 9:
            return {"interrupted": True}
        tick({"planted": 1, "of": task.total})
        truth = rehearse(Path(command[command.index("--log") + 1]), monkeypatch, task)
        truth.save(Path(command[command.index("--truth") + 1]))
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
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert names == {"seed-3.stall", "seed-3.truth.json", "accuracy.json", "accuracy.txt"}
    assert main(args) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*args, "--force"]) == 0


def test_everything_by_default(asked: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", "--seeds", "9"]) == 130
    assert asked == [Task(9, 40, tuple(KINDS))]
    assert capsys.readouterr().err.endswith("stallbook: interrupted\n")


def test_a_kind_that_does_not_exist(asked: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", "--kinds", "gremlins"]) == 2
    assert "there is no fault 'gremlins'" in capsys.readouterr().err
    assert asked == []
