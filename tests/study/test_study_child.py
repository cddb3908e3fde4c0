from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stallbook.demo import Settings
from stallbook.errors import StallbookError
from stallbook.study import child
from stallbook.study.progress import Estimate, duration


def start(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(child, "child_command", lambda settings, out: [sys.executable, "-c", script])


def test_the_child_reads_its_settings_back(tmp_path: Path) -> None:
    settings = Settings(seconds=3, rate=7.5, tokenize="process", tokenizer_cpus=(1,))
    command = child.child_command(settings, tmp_path / "x.stall")
    assert command[1:3] == ["-m", "stallbook.demo"]
    assert Settings.from_json(command[command.index("--settings") + 1]) == settings


def test_blas_threads_stand_in_the_environment_before_the_child_starts() -> None:
    environment = child.child_environment(Settings(blas_threads=2))
    assert {environment[name] for name in child.BLAS_VARIABLES} == {"2"}


def test_a_run_that_fails_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, "import sys; print('noise'); sys.exit('stallbook: the reason')")
    with pytest.raises(StallbookError) as caught:
        child.launch(Settings(), tmp_path / "baseline__s1.stall")
    assert str(caught.value).startswith("the run of baseline__s1 ended with exit code 1 (stallbook: the reason)")


def test_a_run_that_is_killed_is_told_with_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(StallbookError, match="SIGKILL"):
        child.launch(Settings(), tmp_path / "x.stall")


def test_an_interrupt_waits_for_the_child_to_close_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    start(monkeypatch, f"import pathlib, time; time.sleep(0.8); pathlib.Path({str(closed)!r}).touch()")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.launch(Settings(), tmp_path / "x.stall", interrupt)
    assert closed.exists()


def test_the_time_left_follows_the_cells_that_were_timed() -> None:
    estimate = Estimate(seconds=60.0, total=35)
    assert estimate.left() == 35 * 70
    estimate.finish(80.0)
    assert estimate.left() == 34 * 80
    assert estimate.left(in_cell=30.0) == 34 * 80 - 30
    assert estimate.left(in_cell=300.0) == 33 * 80
    estimate.done = 35
    assert estimate.left() == 0.0


@pytest.mark.parametrize(("seconds", "shown"), [(12.3, "12 s"), (300, "5 min"), (5399, "89 min"), (7260, "2 h 01 min")])
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
