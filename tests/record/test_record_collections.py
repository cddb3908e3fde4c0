"""Garbage collections: recorded, and harmless wherever they strike."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import read

from stallbook.record import Recorder, spool
from stallbook.record.pauses import Pauses

Make = Callable[..., Recorder]


def striking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a collection strike just before each call of the function."""

    def strike(*args: Any) -> Any:
        gc.collect(0)
        return function(*args)

    return strike


def test_pauses_are_recorded_from_the_start(recorder: Make, log: Path) -> None:
    rec = recorder(gc_pauses=True, clock=time.perf_counter_ns)
    gc.disable()
    try:
        gc.collect(2)  # start-up: before any step
        rec.begin()
        gc.collect(1)
        rec.end()
        rec.close()
    finally:
        gc.enable()
    gc.collect()  # after the end
    run = read(log)
    assert run.pauses.generation.tolist() == [2, 1]
    assert {run.names[p] for p in run.pauses.process} == {"engine"}
    assert run.pauses.t1[0] <= run.steps.t0[0] <= run.pauses.t0[1]
    assert run.pauses.t1[1] <= run.steps.t1[0]
    assert "gc" in run.records


def test_a_collection_may_strike_inside_any_call(
    recorder: Make, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    steps = 20
    monkeypatch.setattr("stallbook.record.spool.word_of", striking(spool.word_of))  # in the middle of a write
    with recorder(gc_pauses=True, clock=striking(time.perf_counter_ns)) as rec:
        name = rec.name("decode")
        for i in range(steps):
            handle = rec.arrive(f"r{i}")
            rec.begin()
            rec.join(handle)
            rec.enter(name, handle)
            rec.emit()
            rec.part(handle)
            rec.finish(handle)
            rec.end(kv_tokens=i)
        assert (rec.errors, rec.dropped) == (0, 0)
    run = read(log)
    assert len(run.pauses.t0) > 5 * steps
    assert run.steps.kv_tokens.tolist() == list(range(steps))
    assert len(run.emissions.step) == steps


def test_a_collection_may_run_on_another_thread(recorder: Make, log: Path) -> None:
    stop = threading.Event()

    def collect() -> None:
        while not stop.is_set():
            gc.collect(0)
            time.sleep(0.0002)

    rec = recorder(gc_pauses=True, clock=time.perf_counter_ns)
    other = threading.Thread(target=collect)
    other.start()
    deadline = time.monotonic() + 10
    steps = 0
    while (steps < 2_000 or rec._pauses.seen < 20) and time.monotonic() < deadline:
        rec.begin()
        rec.emit()
        rec.end(kv_tokens=steps)
        steps += 1
    stop.set()
    other.join()
    rec.close()
    run = read(log)
    assert run.steps.kv_tokens.tolist() == list(range(steps))
    assert len(run.pauses.t0) >= 20


def test_an_emission_during_a_collection_ends_what_stopped_the_process() -> None:
    """Finalizers can let another thread run: the pause is what came after its last emission."""
    times = iter([100, 200])
    pauses = Pauses(lambda: next(times), lambda: 150)
    pauses("start", {"generation": 2})
    pauses("stop", {"generation": 2})
    assert pauses.pending[0][:16] == (150).to_bytes(8, "little") + (200).to_bytes(8, "little")


def test_a_step_leaves_nothing_to_the_collector(recorder: Make) -> None:
    rec = recorder(clock=time.perf_counter_ns)
    name = rec.name("decode")
    handles = [rec.arrive(f"r{i}") for i in range(32)]
    for handle in handles:
        rec.join(handle)

    def steps(n: int) -> None:
        for _ in range(n):
            rec.begin()
            for _ in range(6):
                rec.enter(name)
            rec.emit()
            rec.end(kv_tokens=1)

    steps(200)
    gc.collect()
    gc.disable()
    try:
        before, count = len(gc.get_objects()), gc.get_count()[0]
        steps(1_000)
        assert len(gc.get_objects()) - before < 20  # chunks, not steps
        assert gc.get_count()[0] - count < 20
    finally:
        gc.enable()
    rec.close()
