"""What a shell can do to a command: odd encodings, names that are not UTF-8, outputs that are no files."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_logs import steps, write

from stallbook.cli import main


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny.jsonl")


def ran(*args: str | Path | bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "stallbook", *args], env={**os.environ, **environment}, capture_output=True, check=False
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1:strict"])
def test_a_stdout_that_is_not_utf8(encoding: str, log: Path) -> None:
    text = ran("report", log, PYTHONIOENCODING=encoding)
    assert (text.returncode, text.stderr) == (0, b"")
    assert b"#" in text.stdout
    odd = log.rename(log.with_name("é日.jsonl"))
    told = ran("report", odd, "--format", "json", PYTHONIOENCODING=encoding)
    assert json.loads(told.stdout.decode(encoding.partition(":")[0]))["runs"][0]["run"]["path"] == str(odd)


def test_names_that_are_not_utf8(log: Path, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.jsonl"
    log.rename(os.fsdecode(odd))
    for args in (["report"], ["report", "--format", "json"]):
        done = ran(*args, odd, PYTHONIOENCODING="utf-8:strict")
        assert (done.returncode, done.stderr) == (0, b"")
    for form, name in (("json", "r.json"), ("text", "r.txt")):
        done = ran("report", odd, "--format", form, "--out", tmp_path / name)
        assert (done.returncode, done.stderr) == (0, f"wrote {tmp_path / name}\n".encode())
    assert json.loads((tmp_path / "r.json").read_text())["runs"][0]["run"]["path"] == os.fsdecode(odd)
    assert ran("convert", odd, os.fsencode(tmp_path) + b"/\xff.stall").returncode == 0
    pytest.importorskip("pyarrow")
    done = ran("gaps", odd, "--out", os.fsencode(tmp_path) + b"/\xff.parquet")
    assert done.returncode == 0, done.stderr


def test_what_was_not_recorded_is_no_zero_in_a_table(tmp_path: Path) -> None:
    log, out = write(tmp_path / "some.jsonl", records=["segments"]), tmp_path / "gaps.jsonl"
    assert main(["gaps", str(log), "--out", str(out)]) == 0
    row = json.loads(out.read_text().splitlines()[0])
    assert (row["gc_ns"], row["preempt_ns"], row["tok_ns"]) == (None, None, 0)


@pytest.mark.parametrize("args", [["report", "--out"], ["gaps", "--out"], ["convert"]])
def test_force_does_not_remove_what_is_no_file(args: list[str], log: Path, tmp_path: Path) -> None:
    pipe = tmp_path / {"report": "r.txt", "gaps": "g.csv", "convert": "c.jsonl"}[args[0]]
    os.mkfifo(pipe)
    command, *option = args
    assert main([command, str(log), *option, str(pipe), "--force"]) == 2
    assert pipe.is_fifo()


@pytest.mark.parametrize("text", ["1e308,-1e308,1e308", '{"fixed_ns": true}', '{"fixed_ns": 1' + "0" * 400 + "}"])
def test_a_baseline_beyond_all_times(text: str, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log), "--baseline", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_longest_name_that_a_folder_takes(log: Path, tmp_path: Path) -> None:
    assert main(["convert", str(log), str(tmp_path / ("a" * 249 + ".jsonl"))]) == 0


def test_help_into_a_closed_pipe() -> None:
    read, wrote = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "stallbook", "report", "--help"], stdout=wrote, stderr=subprocess.PIPE, check=False
    )
    os.close(wrote)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_check_whose_reader_went_away_says_by_its_code_what_it_found(form: str, log: Path) -> None:
    limits = [word for n in range(1, 400) for word in ("--max", f"itl.p{n / 8:.3f}=1ns")]  # more than a buffer holds
    for asked in (["--max", "itl.p99=1ns"], limits, ["--max", "itl.p99=10s"]):
        read, wrote = os.pipe()
        os.close(read)
        args = ["check", log, *asked, "--format", form]
        done = subprocess.run(
            [sys.executable, "-m", "stallbook", *args], stdout=wrote, stderr=subprocess.PIPE, check=False
        )
        os.close(wrote)
        assert (done.returncode, done.stderr) == (0 if asked[-1].endswith("10s") else 1, b"")


def test_where_no_gap_is_clean_that_is_said(tmp_path: Path) -> None:
    lines = steps(3, 1)
    slow = write(tmp_path / "slow.jsonl", [line for line in lines if line.get("step") != 2 and line.get("id") != 2])
    told = ran("report", slow).stdout.decode()
    assert "of a tail gap (median); no gap is clean." in told
    assert " - of " not in told


def test_a_forward_pass_that_was_not_recorded_is_no_share(tmp_path: Path) -> None:
    lines = [line for line in steps() if line["e"] != "segment"]
    bare = write(tmp_path / "bare.jsonl", lines, records=[])
    told = ran("report", bare, "--format", "json")
    assert json.loads(told.stdout)["runs"][0]["forward_share"] == {"clean_median": None, "tail_median": None}
    assert b"forward pass is" not in ran("report", bare).stdout


def test_a_narrow_terminal_cuts_no_figure(log: Path) -> None:
    ours, theirs = os.openpty()
    environment = {**os.environ, "COLUMNS": "40", "TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-m", "stallbook", "report", log], stdout=theirs, env=environment) as child:
        os.close(theirs)
        told = b""
        with contextlib.suppress(OSError):
            while some := os.read(ours, 4096):
                told += some
    os.close(ours)
    assert child.returncode == 0
    assert "…" not in told.decode()
