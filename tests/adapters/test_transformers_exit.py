"""A process that ends: what was handed out after the generation thread's end is written, once, and by nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_transformers import IOs, Processor, attached, future, output, request
from fakes import Clock
from test_transformers_lives import step, told

import stallbook as sb
from stallbook.adapters.transformers.engine import Engine

pytestmark = pytest.mark.usefixtures("unhooked")


def taken_late(path: Path, clock: Clock) -> Engine:
    """A program takes its tokens from the queue once the thread has ended."""
    engine, kind = attached(path, clock)

    def loop(processor: Processor) -> None:
        a = request("a")
        processor.scheduler.add_waiting_request(a)
        step(processor, [future(a, 8)])
        step(processor, [future(a)], (a,))

    manager = kind(Processor(clock, IOs(clock)), loop)
    manager._run_generation_loop()
    for n in (1, 2):
        clock.go(2)
        manager.get_result(output("a", n, n == 2))
    return engine


def written(engine: Any) -> int:
    return engine.recorder._store.written  # type: ignore[no-any-return]


def test_what_is_taken_after_the_thread_has_ended(tmp_path: Path, clock: Clock) -> None:
    engine = taken_late(tmp_path / "a.stall", clock)
    engine.rest()
    engine.recorder.close()
    assert engine.hooks.errors == 0, engine.hooks.last
    assert told(sb.open(tmp_path / "a.stall")) == {"a": [1, 1]}


def test_the_interpreter_s_end_writes_it(tmp_path: Path) -> None:
    """Before the recorder closes its log."""
    does = f"from test_transformers_exit import *; taken_late(Path({str(tmp_path / 'a.stall')!r}), Clock())"
    tests = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    subprocess.run([sys.executable, "-c", does], env=env, check=True, timeout=60)
    run = sb.open(tmp_path / "a.stall")
    assert told(run) == {"a": [1, 1]}
    assert not run.notes


def test_why_the_hooks_gave_up_meanwhile_is_written_too(tmp_path: Path, clock: Clock) -> None:
    engine = taken_late(tmp_path / "a.stall", clock)
    for _ in range(10):
        engine.hooks.failed()
    engine.rest()
    engine.recorder.close()
    assert "hooks_off" in sb.open(tmp_path / "a.stall").facts


def test_a_child_and_a_thread_that_runs_write_nothing_so(tmp_path: Path, clock: Clock) -> None:
    engine = taken_late(tmp_path / "a.stall", clock)
    before = written(engine)
    engine.thread = 1
    engine.rest()
    engine.thread, recorder = 0, engine.process.recorder
    engine.process.recorder = None  # as in a child
    engine.rest()
    assert written(engine) == before
    assert recorder is not None
    recorder.close()
