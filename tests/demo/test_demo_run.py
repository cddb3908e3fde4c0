"""Whole runs in processes of their own: what they leave behind and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stallbook as sb
from stallbook.demo import Settings


def command(settings: dict[str, Any], *more: str) -> list[str]:
    return [sys.executable, "-m", "stallbook.demo", "--settings", json.dumps(settings), *more]


def run(settings: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(settings, *more), capture_output=True, text=True, timeout=120)


def test_a_short_run_leaves_a_log_that_reconciles(tmp_path: Path) -> None:
    out = tmp_path / "x.stall"
    done = run({"seconds": 2, "rate": 3, "gc_freeze": True, "compact_history": True}, "--out", str(out), "--progress")
    assert (done.returncode, done.stderr) == (0, "")
    *ticks, last = map(json.loads, done.stdout.splitlines())
    summary = last["done"]
    assert len(ticks) >= 5
    assert {"phase", "elapsed", "total", "tokens", "running", "waiting"} == set(ticks[0])
    assert summary["requests"] == summary["finished"] > 0
    assert [pool["num_threads"] for pool in summary["blas"]] == [1] * len(summary["blas"]) != []
    log = sb.open(out)
    assert int(log.emissions.tokens.sum()) == summary["tokens"]
    assert len(log.steps.id) == summary["steps"]
    assert log.config["blas"] == summary["blas"]
    assert log.config["trace_sha256"] == summary["trace_sha256"]
    assert len(log.probes.ns) >= 1
    assert (log.requests.prompt_tokens > 0).all()
    p = sb.partition(log)
    assert p.reconcile.max_error_ns == 0
    assert p.reconcile.skipped_steps_unexplained == 0


@pytest.mark.slow
def test_a_tokenizer_process_and_recompute_serve_the_same_requests(tmp_path: Path) -> None:
    out = tmp_path / "x.stall"
    settings = {"seconds": 1, "rate": 4, "tokenize": "process", "preemption": "recompute", "kv_blocks": 200}
    done = run(settings, "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    log = sb.open(out)
    assert "tok" not in {log.names[i] for i in set(log.segments.name.tolist())}
    assert json.loads(done.stdout)["done"]["unfinished"] == 0


def test_ctrl_c_leaves_a_readable_log(tmp_path: Path) -> None:
    out = tmp_path / "x.stall"
    more = ("--out", str(out), "--progress")
    child = subprocess.Popen(command({"seconds": 60, "rate": 3}, *more), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        tick = json.loads(line)
        if tick.get("tokens", 0) > 20:
            child.send_signal(signal.SIGINT)
            break
    rest = child.stdout.read().splitlines()
    child.stdout.close()
    assert child.wait(30) == 130
    summary = json.loads(rest[-1])["done"]
    assert summary["interrupted"]
    assert int(sb.open(out).emissions.tokens.sum()) == summary["tokens"] > 20


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    taken = tmp_path / "taken.stall"
    taken.mkdir()
    file = tmp_path / "file"
    file.write_text("")
    cases: list[tuple[dict[str, Any], list[str], str]] = [
        ({"rate": -1}, ["--out", str(tmp_path / "a.stall")], "rate"),
        ({"rate": 1}, ["--out", str(taken)], "--force"),
        ({"rate": 1}, ["--out", str(file / "a.stall")], "writable folder"),
        ({"rate": 1}, [], "--out"),
        ({"tokenize": "process", "tokenizer_cpus": [4096]}, ["--out", str(tmp_path / "b.stall")], "tokenizer_cpus"),
    ]
    for settings, more, said in cases:
        done = run(settings, *more)
        assert done.returncode == 2, done
        assert done.stderr.count("\n") == 1
        assert said in done.stderr
        assert not done.stdout
    assert not (tmp_path / "a.stall").exists()


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_run_with_a_remedy(tmp_path: Path) -> None:
    out = tmp_path / "x.stall"
    limited = ["bash", "-c", 'ulimit -f 300; exec "$@"', "-", *command({"seconds": 60, "rate": 4}, "--out", str(out))]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "make room on the disk" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    sb.open(out)


def test_blas_threads_that_were_not_set_in_time_are_refused(tmp_path: Path) -> None:
    code = (
        "import numpy, sys; from stallbook.demo import Settings, serve; from stallbook.errors import StallbookError\n"
        "try: serve(Settings(rate=1, record=False, blas_threads=1), None)\n"
        "except StallbookError as error: sys.exit(str(error))"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    if os.cpu_count() == 1:
        return  # nothing to refuse
    assert done.returncode == 1
    assert "before NumPy is imported" in done.stderr


def test_importing_the_package_does_not_import_numpy() -> None:
    code = "import sys, stallbook.demo, stallbook.record; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert Settings().seconds == 60
