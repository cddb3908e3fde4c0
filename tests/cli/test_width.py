"""No text for people is wider than 80 columns, whatever the log and however long its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stallbook.cli import main
from stallbook.cli.application import COMMANDS
from stallbook.cli.demo import _lines

DATA = Path(__file__).parents[1] / "data"
LOGS = sorted(
    [*(DATA / "scenarios").glob("*.jsonl"), *(p for p in (DATA / "golden").glob("*.npz") if ".parts" not in p.name)]
)
LONG = "a-" * 60 + "run"
ALLOW = ["--allow", "engine,workload,settings,rules,boundary,abilities,machine,drift"]

ONE_LOG: dict[str, list[list[str]]] = {
    "report": [[], ["--brief"], ["--rules", "post"]],
    "advise": [[], ["--brief"]],
    "check": [["--max", "itl.p99=1us", "--max", "tail.prefill=10%", "--min", "tokens_per_s=1", "--max", "gap.gc=1ms"]],
}
"""Commands that print a text about one log, and their options."""
ELSEWHERE = {
    "compare": "below", "demo": "below", "ladder": "tests/study/test_study_tables.py",
    "accuracy": "tests/inject/test_inject_score.py", "gaps": "no text", "convert": "no text",
    "attach": "no text", "predict": "tests/predict",
    "study": "tests/predict/test_predict_studies.py",
}  # fmt: skip
"""Where the others are held to it."""


def held(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run it: no line of what it prints is too wide. A check may fail."""
    assert main(args) in ((0, 1) if args[0] == "check" else (0,)), args
    out = capsys.readouterr().out
    assert out
    wide = [line for line in out.splitlines() if len(line) > 80]
    assert not wide, (args, wide)
    return out


def test_every_command_is_held_to_it() -> None:
    assert {*ONE_LOG, *ELSEWHERE} == set(COMMANDS)


@pytest.mark.parametrize("log", LOGS, ids=lambda p: p.stem)
def test_what_is_said_of_one_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, options in ONE_LOG.items():
        for more in options:
            held([command, str(log), *more], capsys)


def long_names(folder: Path, logs: list[Path]) -> list[str]:
    names = [folder / f"{i}-{LONG}{log.suffix}" for i, log in enumerate(logs)]
    for name, log in zip(names, logs, strict=True):
        name.symlink_to(log)
    return [str(name) for name in names]


def test_what_is_said_of_many_logs_with_long_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = long_names(tmp_path, LOGS[:4])
    for command, options in ONE_LOG.items():
        for more in options:
            told = held([command, *names, *more, *(ALLOW if command == "check" else [])], capsys)
            if "--brief" in more:  # names fold, none is cut
                assert "…" not in told
                assert told.count("-") >= 60 * len(names)


def test_what_is_said_of_two_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, *b = long_names(tmp_path, [log for log in LOGS if log.suffix == ".npz"])
    for rules in ("full", "post"):
        held(["compare", a, "--against", *b, *ALLOW, "--rules", rules], capsys)
        held(["check", a, "--max", "itl.p99=1ms", "--against", *b, *ALLOW, "--rules", rules], capsys)


def test_the_demonstrators_last_lines() -> None:
    summary: dict[str, Any] = {
        "rate": 1234.5, "capacity": 1234567.0, "load": 0.75, "finished": 123456, "tokens": 123456789, "wall_s": 1234.5,
        "unfinished": 123456,
    }  # fmt: skip
    assert all(len(line) <= 80 for line in _lines(summary).splitlines())
