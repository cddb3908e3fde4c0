"""Commands end to end: what they print, what they write, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_logs import MS, steps, write

from stallbook.cli import main


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny.jsonl")


def last_error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr; nothing may have gone to stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("stallbook: ")
    return line


def test_report_prints_the_answer_on_stdout(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("83% of the tail's time is prefill; p99 60.0 ms, median 10.0 ms.")
    assert err == ""


def test_report_as_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log), str(log), "--format", "json", "--rules", "post"]) == 0
    document = json.loads(capsys.readouterr().out)
    first, second = document["runs"]
    assert first == second
    assert (first["gaps"], first["tokens"], first["requests"]) == (14, 16, 2)
    assert first["tail"]["count"]["prefill"] == 2
    assert first["reconcile"]["max_error_ns"] == 0


def test_report_at_a_boundary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = [{"e": "deliver", "request": "r1", "t": t, "tokens": 1, "boundary": "client"} for t in (12 * MS, 22 * MS)]
    path = write(tmp_path / "tiny.jsonl", [*steps(), *late])
    assert main(["report", str(path), "--boundary", "client", "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["run"]["boundary"], run["gaps"], run["itl_ms"]["max"]) == ("client", 1, 10)
    assert main(["report", str(path), "--boundary", "frontend"]) == 2
    assert "choose one of: engine, client" in last_error(capsys)
    assert main(["report", str(path), "--boundary", "client", "--rules", "post"]) == 2
    assert "--rules full" in last_error(capsys)


def test_report_to_a_file(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.txt"
    assert main(["report", str(log), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("83% of")
    assert capsys.readouterr().out == ""
    assert main(["report", str(log), "--out", str(out)]) == 2
    assert "--force" in last_error(capsys)
    assert main(["report", str(log), "--brief", "--out", str(out), "--force"]) == 0
    assert out.read_text(encoding="utf-8").startswith("1 run")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.txt", "tiny.jsonl"]


@pytest.mark.parametrize(
    "text", ["1000000,2000,0", '{"fixed_ns": 1000000, "row_ns": 2000}', "1e6, 2e3", "1000000,2000"]
)
def test_a_baseline_can_be_given(text: str, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log), "--baseline", text, "--format", "json"]) == 0
    baseline = json.loads(capsys.readouterr().out)["runs"][0]["baseline"]
    assert (baseline["method"], baseline["fixed_ns"], baseline["row_ns"]) == ("explicit", 1e6, 2e3)


@pytest.mark.parametrize(
    "text", ["", "x", "1,2,3,4", "nan,1,1", "{", '{"fixed": 1}', "[1]", "inf,0,0", '{"row_ns": []}']
)
def test_a_bad_baseline_is_refused(text: str, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log), f"--baseline={text}"]) == 2
    assert "FIXED,ROW,KV" in last_error(capsys)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_gaps(suffix: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / f"gaps{suffix}"
    assert main(["gaps", str(log), "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert out.stat().st_size > 0
    assert main(["gaps", str(log), "--out", str(out)]) == 2
    last_error(capsys)
    assert main(["gaps", str(log), "--out", str(out), "--force"]) == 0


def test_gaps_in_an_unknown_format(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gaps", str(log), "--out", str(tmp_path / "gaps.xlsx")]) == 2
    assert ".parquet" in last_error(capsys)


def test_convert_keeps_every_figure(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle, back = tmp_path / "tiny.stall", tmp_path / "back.jsonl"
    assert main(["convert", str(log), str(bundle)]) == 0
    assert main(["convert", str(bundle), str(back)]) == 0
    capsys.readouterr()
    told = []
    for path in (log, bundle, back):
        assert main(["report", str(path), "--format", "json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        told.append(
            {key: run[key] for key in ("tail", "all", "itl_ms", "ttft_ms", "counters", "histogram", "baseline")}
        )
    assert told[0] == told[1] == told[2]
    assert main(["convert", str(log), str(bundle)]) == 2
    last_error(capsys)
    assert main(["convert", str(log), str(bundle), "--force"]) == 0


@pytest.mark.parametrize("lines", [[], [{"e": "arrive", "request": "r1", "t": 5}]])
@pytest.mark.parametrize("rules", ["full", "post"])
def test_a_log_of_nothing(lines: list[object], rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "empty.jsonl", lines)  # type: ignore[arg-type]
    assert main(["report", str(path), "--rules", rules]) == 0
    assert capsys.readouterr().out.startswith("No gaps")
    assert main(["report", str(path), "--rules", rules, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["itl_ms"]["p99"] is None
    for suffix in (".parquet", ".csv", ".jsonl"):
        assert main(["gaps", str(path), "--out", str(tmp_path / f"g{suffix}"), "--rules", rules]) == 0


def test_a_log_of_one_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = [
        {"e": "arrive", "request": "r1", "t": 0},
        {"e": "step", "id": 0, "t0": 1, "t1": 9, "decode_tokens": 1},
        {"e": "emit", "step": 0, "t": 8, "tokens": {"r1": 1}},
    ]
    path = write(tmp_path / "one.jsonl", one)
    assert main(["report", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No gaps")
    assert "1 request, 1 token (" in out


@pytest.mark.parametrize(
    "args",
    [
        ["report"], ["report", "missing.stall"], ["report", "--format", "xml", "x"], ["report", "--nope", "x"],
        ["gaps", "x"], ["nonsense"], ["convert", "a"], ["report", "x", "--rules", "all"],
    ],
)  # fmt: skip
def test_bad_usage_ends_with_one_line_and_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    last_error(capsys)


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out.count("Usage:") == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stallbook ")


def test_a_file_name_cannot_break_the_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "a\nb\x1b[31m.stall")]) == 2
    assert "\x1b" not in last_error(capsys)


def test_an_unwritable_folder(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out in (tmp_path / "none" / "r.txt", log / "r.txt"):
        assert main(["report", str(log), "--out", str(out)]) == 2
        assert str(out) in last_error(capsys)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["--format", "json"], []])
def test_a_full_disk_is_one_line(args: list[str], log: Path) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "stallbook", "report", str(log), *args],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "space" in line


def test_a_closed_pipe_is_quiet(log: Path) -> None:
    read, wrote = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "stallbook", "report", str(log)],
        stdout=wrote, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(wrote)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_fails_half_way_leaves_nothing(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: object, part: Path) -> None:
        part.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(__import__("stallbook.frames").frames.FORMATS, ".csv", full)
    assert main(["gaps", str(log), "--out", str(tmp_path / "gaps.csv")]) == 2
    assert "no space left" in last_error(capsys)
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.jsonl"]


def test_interrupted(log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stallbook.log.open_run", stop)
    assert main(["report", str(log)]) == 130
    assert capsys.readouterr().err.strip() == "stallbook: interrupted"
