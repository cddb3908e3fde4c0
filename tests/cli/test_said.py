"""What commands say on stderr: what they wrote, what takes so long, and how else it could be asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_logs import write

from stallbook.cli import main, patience
from stallbook.run import Run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny.jsonl")


@pytest.mark.parametrize(
    ("args", "out"),
    [
        (["report", "LOG", "--out", "OUT"], "r.txt"), (["report", "LOG", "--format", "json", "--out", "OUT"], "r.json"),
        (["report", "LOG", "--format", "html", "--out", "OUT"], "r.html"),
        (["report", "LOG", "--format", "png", "--out", "OUT"], "r.png"),
        (["advise", "LOG", "--out", "OUT"], "a.txt"), (["gaps", "LOG", "--out", "OUT"], "g.csv"),
        (["convert", "LOG", "OUT"], "l.stall"), (["convert", "LOG", "OUT"], "l.perfetto-trace"),
        (["check", "LOG", "--max", "itl.p99=1s", "--out", "OUT"], "c.txt"),
        (["check", "LOG", "--max", "itl.p99=1s", "--summary", "OUT"], "s.md"),
    ],
)  # fmt: skip
def test_what_was_written(
    args: list[str], out: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for library, suffix in (("jinja2", ".html"), ("vl_convert", ".png"), ("perfetto", ".perfetto-trace")):
        if out.endswith(suffix):
            pytest.importorskip(library)
    place = tmp_path / out
    assert main([{"LOG": str(log), "OUT": str(place)}.get(arg, arg) for arg in args]) == 0
    assert place.exists()
    (line,) = (line for line in capsys.readouterr().err.splitlines() if not line.endswith(" ..."))
    assert line == f"wrote {place}" + (": 14 gaps" if args[0] == "gaps" else "")


def test_a_folder_of_logs(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(log), str(tmp_path / "b.stall")]) == 0
    capsys.readouterr()
    for command in (["report"], ["advise"], ["gaps", "--out", str(tmp_path / "g.csv")], ["check", "--max", "tokens=1"]):
        assert main([command[0], str(tmp_path), *command[1:]]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is a folder of logs, not a log" in line
        assert str(tmp_path / "*.stall") in line
        assert str(tmp_path / "b.stall") in line


def test_an_ending_that_convert_does_not_know(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(log), str(tmp_path / "A.foo")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for ending in (".stall", ".jsonl", ".jsonl.gz", ".perfetto-trace", ".pftrace"):
        assert ending in line.split("; ")[-1]


def test_an_unknown_figure(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(log), "--max", "zzzzzzzz=1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert {"tail.CAUSE", "all.CAUSE", "gap.CAUSE", "first.CAUSE", "itl.pN", "ttft.pN", "itl.p99"} <= set(
        line.replace(",", "").split()
    )


@pytest.mark.parametrize("command", ["report", "advise", "check", "gaps", "convert"])
def test_work_that_takes_long_is_named_where_nobody_watches(
    command: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stallbook.log import open_run

    def slow(*args: Any) -> Run:
        time.sleep(0.2)
        return open_run(*args)

    monkeypatch.setattr("stallbook.log.open_run", slow)
    monkeypatch.setattr(patience, "MOMENT_S", 0.02)
    more = {
        "check": ["--max", "itl.p99=1s"], "gaps": ["--out", str(tmp_path / "g.csv")],
        "convert": [str(tmp_path / "c.perfetto-trace")],
    }  # fmt: skip
    if command == "convert":
        pytest.importorskip("perfetto")
    assert main([command, str(log), *more.get(command, [])]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("wrote")]
    assert len(lines) == 1
    assert lines[0].endswith(" ...")


def test_quick_work_says_nothing(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log)]) == 0
    assert capsys.readouterr().err == ""


CODE = """
import time
from stallbook.cli import patience
patience.MOMENT_S = 0.05
with patience.patience("reading") as tell:
    tell("one\\x1b.stall")
    time.sleep(0.3)
    tell("two.stall")
"""


def test_a_terminal_shows_the_last_thing_begun_and_is_left_clean() -> None:
    ours, theirs = os.openpty()
    done = subprocess.run([sys.executable, "-c", CODE], stderr=theirs, check=False)
    os.close(theirs)
    told = os.read(ours, 4096).decode()
    os.close(ours)
    assert done.returncode == 0
    assert told.split("\r\x1b[2K") == ["", "reading: one?.stall ...", "reading: two.stall ...", ""]


def test_json_on_stdout_stays_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log), "--format", "json"]) == 0
    json.loads(capsys.readouterr().out)
