"""`stallbook demo` around a stand-in for the engine's process: what is asked of it, how it ends, what is kept."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cli_logs import steps, write

from stallbook.cli import child, main
from stallbook.demo import Settings

CHILD = """
import json, os, pathlib, signal, sys, time
settings, out, how = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
def say(**told): print(json.dumps(told), flush=True)
say(phase="starting", elapsed=0, total=1)
if how == "fails":
    print("out: is full; free some space", file=sys.stderr); sys.exit(2)
if how == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
print("a library says hello")
if out and how != "fills":
    pathlib.Path(out).mkdir(parents=True)
    (pathlib.Path(out) / "manifest.json").write_text(os.environ["OPENBLAS_NUM_THREADS"])
if how == "fills":
    from stallbook.record import Recorder
    rec = Recorder(out, engine="x")
    for _ in range(int(sys.argv[4])):
        rec.begin(); rec.end()
    rec.close()
    print("the disk is full; free some space", file=sys.stderr); sys.exit(2)
say(phase="serving", elapsed=0.2, total=1, tokens=5, running=1, waiting=0)
if how == "waits":
    for _ in range(600):
        if asked: break
        time.sleep(0.05)
    say(done={"interrupted": True, "tokens": 5}); sys.exit(130)
say(done={"rate": 8.0, "capacity": 3000.0, "load": 0.9, "finished": 2, "unfinished": 1, "tokens": 5, "wall_s": 1.5})
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for the demonstrator; `how` says what it does, `settings` is what it was told."""
    told: dict[str, Any] = {"how": "serves"}

    def command(settings: Settings, log: Path | None) -> list[str]:
        told["settings"] = settings
        return [sys.executable, "-c", CHILD, json.dumps(settings.as_dict()), str(log or ""), *told["how"].split()]

    monkeypatch.setattr(child, "child_command", command)
    monkeypatch.chdir(tmp_path)
    return told


@pytest.fixture
def readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in's log reads as a small one."""
    from stallbook.log import open_run

    tiny = write(tmp_path / "tiny.jsonl", steps())
    monkeypatch.setattr("stallbook.log.open_run", lambda *_: open_run(tiny))


@pytest.mark.usefixtures("readable")
def test_report_and_place_of_the_log(engine: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("83% of the tail's time is prefill")
    assert " ".join(out[out.index("Served ") :].split()) == (
        "Served 8 requests/s, 90% of this machine's measured 3,000 tokens/s: 2 requests, 5 tokens in 1.5 s. "
        "Past capacity: not finished when the run was ended: 1 request."
    )
    assert err.splitlines() == [
        "starting (heap, tokenizer, model) ...",
        "serving ...",
        "wrote out/demo-1.stall: stallbook report out/demo-1.stall",
    ]
    assert engine["settings"] == Settings()
    assert main(["demo", "--seconds", "5"]) == 0
    assert "wrote out/demo-2.stall" in capsys.readouterr().err


@pytest.mark.usefixtures("readable", "engine")
def test_json_keeps_stdout_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--format", "json", "--blas-threads", "2", "--out", "x.stall"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["runs"][0]["gaps"] == 14
    assert "x.stall" in err
    assert Path("x.stall/manifest.json").read_text() == "2"


@pytest.mark.usefixtures("engine")
def test_without_a_log_there_is_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--no-record"]) == 0
    assert capsys.readouterr().out.startswith("Served 8 requests/s")
    assert main(["demo", "--no-record", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 5
    assert not Path("out").exists()


def test_flags_become_settings(engine: dict[str, Any]) -> None:
    flags = (
        "--seconds 9 --seed 3 --rate 7.5 --max-num-seqs 20 --token-budget 256 --capture-sizes 1,2,48 --kv-blocks 500 "
        "--preemption recompute --admit-watermark 0.1 --gc-freeze --compact-history --tokenize process "
        "--tokenizer-cpus 0,1 --blas-threads 2 --no-record"
    )
    assert main(["demo", *flags.split()]) == 0
    assert engine["settings"] == Settings(
        seconds=9.0, seed=3, rate=7.5, max_num_seqs=20, token_budget=256, capture_sizes=(1, 2, 48), kv_blocks=500,
        preemption="recompute", admit_watermark=0.1, gc_freeze=True, compact_history=True, tokenize="process",
        tokenizer_cpus=(0, 1), blas_threads=2, record=False,
    )  # fmt: skip
    assert main(["demo", "--no-record", "--capture-sizes", "none"]) == 0
    assert engine["settings"].capture_sizes == ()


@pytest.mark.parametrize(
    "flags", ["--rate fast", "--seconds 0", "--capture-sizes 1,x", "--capture-sizes 4,2", "--seed x", "--preemption no"]
)
@pytest.mark.usefixtures("engine")
def test_bad_flags(flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *flags.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stallbook: ")
    assert not Path("out").exists()


def test_what_the_engine_says_is_the_error(engine: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    engine["how"] = "fails"
    assert main(["demo"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "stallbook: out: is full; free some space"
    engine["how"] = "dies"
    assert main(["demo"]) == 2
    assert "SIGKILL" in capsys.readouterr().err.splitlines()[-1]


def test_what_a_failed_run_leaves_is_said(engine: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    engine["how"] = "fills 3"
    assert main(["demo", "--out", "x.stall"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "what was recorded until then is in x.stall and can be read; free some space" in line
    assert Path("x.stall/engine.spool").exists()
    engine["how"] = "fills 0"
    assert main(["demo", "--out", "y.stall"]) == 2
    assert "nothing was recorded; free some space" in capsys.readouterr().err.splitlines()[-1]
    assert not Path("y.stall").exists()


@pytest.mark.parametrize("flag", ["seconds", "rate"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0", "-1", "1e300", "1e400"])
@pytest.mark.usefixtures("engine")
def test_impossible_numbers(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", f"--{flag}={value}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{flag} is " in line
    assert "between 0 and" in line


@pytest.mark.usefixtures("engine")
def test_more_requests_than_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--rate", "1000", "--seconds", "86400"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "86,400,000 requests; give fewer, up to 1,000,000" in line


def test_ctrl_c_waits_for_the_log(engine: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    engine["how"] = "waits"

    def press() -> None:
        while not Path("out/demo-1.stall/manifest.json").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    assert main(["demo"]) == 130
    thread.join()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "stallbook: interrupted; what was recorded is in out/demo-1.stall"


@pytest.mark.usefixtures("readable")
def test_an_older_log_is_kept_unless_there_is_a_new_one(
    engine: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "x.stall"
    old.mkdir()
    (old / "manifest.json").write_text("old")
    assert main(["demo", "--out", "x.stall"]) == 2
    assert "--force" in capsys.readouterr().err
    engine["how"] = "fails"
    assert main(["demo", "--out", "x.stall", "--force"]) == 2
    assert (old / "manifest.json").read_text() == "old"
    engine["how"] = "serves"
    assert main(["demo", "--out", "x.stall", "--force"]) == 0
    assert (old / "manifest.json").read_text() == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.jsonl", "x.stall"]


@pytest.mark.usefixtures("engine")
def test_what_is_not_a_log_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("x")
    for name in ("mine", "file"):
        assert main(["demo", "--out", name, "--force"]) == 2
        assert "no log of stallbook" in capsys.readouterr().err
    (tmp_path / "mine" / "manifest.json").write_text("{}")
    assert main(["demo", "--out", "mine", "--force"]) == 2
    assert "'thesis.txt', which is not stallbook's" in capsys.readouterr().err
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
