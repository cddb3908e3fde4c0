"""One run from settings to summary: start up, measure if asked, serve, leave a log."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stallbook.demo import capacity as capacities
from stallbook.demo.engine import Engine
from stallbook.demo.history import CompactHistory, History, ObjectHistory, startup_heap
from stallbook.demo.limits import limits_of
from stallbook.demo.machine import REAL_CLOCK, check_blas, check_cpus, describe
from stallbook.demo.model import Model, NumpyExecutor
from stallbook.demo.ports import Intake
from stallbook.demo.probe import Probe
from stallbook.demo.settings import Settings
from stallbook.demo.summary import Progress, Stop, Summary
from stallbook.demo.tokenizer import LoopIntake, ProcessIntake, trained
from stallbook.demo.workload import Arrival, make_trace, trace_digest
from stallbook.errors import StallbookError
from stallbook.record import NullRecorder, Recorder

__all__ = ["run"]

Tick = Callable[[Progress], None]


def run(settings: Settings, out: Path | None, progress: Tick | None, stop: Stop) -> Summary:
    """See `stallbook.demo.serve`."""
    _check_out(settings, out)
    check_cpus(settings.tokenizer_cpus)
    summary = Summary(path=str(out or ""), blas=check_blas(settings.blas_threads))
    _say(progress, "starting", settings)
    heap = startup_heap()  # alive to the end of this function, as a server's would be
    trained()
    executor = NumpyExecutor(Model(), max(settings.max_num_seqs, capacities.BURST_ROWS))
    try:
        _set_rate(settings, summary, executor, progress, stop)
        if not stop.requested:
            trace = make_trace(settings.seed, settings.seconds, summary.rate)
            summary.trace_sha256 = trace_digest(trace)
            with closing(_intake(settings)) as intake:
                _serve(settings, out, summary, _Parts(executor, intake, progress, stop, trace))
    except KeyboardInterrupt:
        summary.interrupted = True
    del heap
    summary.interrupted = summary.interrupted or stop.requested
    return summary


def _check_out(settings: Settings, out: Path | None) -> None:
    if out is None or not settings.record:
        return
    if out.exists():
        raise StallbookError("exists", "there is something already", "give another path, or --force", str(out))
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise StallbookError("unwritable", f"{parent} cannot be written", "give a path in a writable folder", str(out))


def _say(progress: Tick | None, phase: str, settings: Settings) -> None:
    if progress is not None:
        progress(Progress(phase, 0.0, settings.seconds))


def _set_rate(
    settings: Settings, summary: Summary, executor: NumpyExecutor, progress: Tick | None, stop: Stop
) -> None:  # fmt: skip
    if settings.rate is not None:
        summary.rate = float(settings.rate)
        return
    _say(progress, "calibrating", settings)
    found = capacities.measure(
        executor=executor, intake=LoopIntake(), recorder=NullRecorder(), clock=REAL_CLOCK, history=ObjectHistory(),
        probe=Probe(REAL_CLOCK.now), stop=stop,
    )  # fmt: skip
    if not found.tokens_per_s and not stop.requested:
        raise StallbookError("capacity", "this machine served nothing in the burst", "give --rate yourself")
    summary.rate = capacities.arrival_rate(found)
    summary.capacity, summary.load = round(found.tokens_per_s, 1), capacities.LOAD
    summary.capacity_spread, summary.capacity_probe_ns = round(found.spread, 3), found.probe_ns


def _intake(settings: Settings) -> Intake:
    if settings.tokenize == "process":
        return ProcessIntake(settings.tokenizer_cpus, settings.tokenizer_nice)
    return LoopIntake()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What one serving loop is put together from."""

    executor: NumpyExecutor
    intake: Intake
    progress: Tick | None
    stop: Stop
    trace: list[Arrival]


def _serve(settings: Settings, out: Path | None, summary: Summary, parts: _Parts) -> None:
    history: History = CompactHistory() if settings.compact_history else ObjectHistory()
    recorder = _recorder(settings, out, summary)
    if settings.blas_threads > 1:
        parts.executor.model.between = recorder.look
    engine = Engine(
        parts.trace, limits_of(settings), executor=parts.executor, intake=parts.intake, recorder=recorder,
        clock=REAL_CLOCK, history=history, probe=Probe(REAL_CLOCK.now), stop=parts.stop,
        progress=_watched(recorder, parts.progress, out),
        seconds=settings.seconds, drain_seconds=settings.drain_seconds,
    )  # fmt: skip
    started, cpu = time.perf_counter(), time.thread_time()
    try:
        with _frozen(settings.gc_freeze):
            started, cpu = time.perf_counter(), time.thread_time()
            engine.run()
    except KeyboardInterrupt:
        summary.interrupted = True
    finally:
        summary.wall_s, summary.cpu_s = time.perf_counter() - started, time.thread_time() - cpu
        summary.interrupted = summary.interrupted or parts.stop.requested
        _account(summary, engine)
        for key in ("unfinished", "preemptions", "restarts", "eager_steps", "interrupted", "drain_limit_hit", "cpu_s"):
            recorder.fact(key, getattr(summary, key))
        recorder.close()
    _watched(recorder, None, out)(Progress("done", 0.0, 0.0))


def _watched(recorder: Recorder | NullRecorder, progress: Tick | None, out: Path | None) -> Tick:
    """A recorder never stops an engine, but this engine runs for its log: without one there is no point."""

    def tick(now: Progress) -> None:
        if recorder.dropped or recorder.errors:
            remedy = f"read what it holds (stallbook report {out}), make room on the disk and run again"
            raise StallbookError("log-incomplete", "the log could not be written to its end", remedy, str(out))
        if progress is not None:
            progress(now)

    return tick


def _recorder(settings: Settings, out: Path | None, summary: Summary) -> Recorder | NullRecorder:
    if out is None or not settings.record:
        return NullRecorder()
    config = {
        **settings.as_dict(), "rate": summary.rate, "rate_auto": settings.rate is None, "capacity": summary.capacity,
        "capacity_spread": summary.capacity_spread, "capacity_probe_ns": summary.capacity_probe_ns,
        "load": summary.load, "trace_sha256": summary.trace_sha256, "blas": summary.blas, **describe(),
    }  # fmt: skip
    try:
        return Recorder(
            out, engine="stallbook demo", config=config, pool_threads=settings.blas_threads > 1, strict=True
        )
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        remedy = "give a path in a writable folder, on a disk with room"
        raise StallbookError("unwritable", what, remedy, str(out)) from None


@contextmanager
def _frozen(freeze: bool) -> Iterator[None]:
    """Move everything that lives at the start out of the collector's sight."""
    if not freeze:
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _account(summary: Summary, engine: Engine) -> None:
    counts = engine.counts
    summary.requests, summary.finished = counts.arrived, counts.finished
    summary.unfinished = counts.arrived - counts.finished
    summary.tokens, summary.steps, summary.max_batch = counts.tokens, counts.steps, counts.max_batch
    summary.evictions, summary.restarts = counts.evictions, counts.restarts
    summary.preemptions = counts.evictions + counts.restarts
    summary.eager_steps = counts.eager_steps
    summary.drain_limit_hit = engine.drain_limit_hit
