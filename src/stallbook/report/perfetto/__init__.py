"""The timeline: a run and its partition as a Perfetto trace, for ui.perfetto.dev and the trace processor's SQL.

Times are the log's own, of a monotonic clock. A gap is a slice of category `gap` on its request's track; its parts
are arguments, those of `stallbook gaps` that are not 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from stallbook.abilities import unplaced
from stallbook.partition import Partition
from stallbook.report.perfetto.engine import write_counters, write_deliveries, write_engine, write_pauses
from stallbook.report.perfetto.requests import write_requests
from stallbook.report.perfetto.stream import Stream, messages
from stallbook.run import NEVER, UNKNOWN, Ints, Run
from stallbook.waits import first_tokens, holders

__all__ = ["SUFFIXES", "messages", "write"]

SUFFIXES: Final = (".perfetto-trace", ".pftrace")

Progress = Callable[[int, int], None]
"""Called with how much of how much is done."""


def write(p: Partition, path: Path, progress: Progress | None = None) -> None:
    """Write the run of a partition as a trace to `path`."""
    run = p.run
    done, total = 0, max(1, len(run.emissions.step) + len(run.segments.t0) + len(run.deliveries.t))

    def tick(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(min(done, total), total)

    start, end = _ends(run)
    flows, emission = _flows(run)
    with path.open("wb") as file:
        stream = Stream(file, max(0, -start), start)
        _write_about(stream, p, start, end)
        write_engine(stream, run, tick)
        write_pauses(stream, run)
        write_deliveries(stream, run, emission, flows, tick)
        write_counters(stream, run)
        write_requests(stream, p, first_tokens(p), flows, end, tick)
        stream.flush()


def _ends(run: Run) -> tuple[int, int]:
    """The first and the last of all stamps."""
    tables: tuple[Any, ...] = (run.steps, run.segments, run.pauses, run.evictions, run.holds)
    columns: list[Ints] = [c for table in tables for c in (table.t0, table.t1)]
    columns += [run.requests.arrive, run.requests.admit, run.requests.finish, run.steps.emit, run.deliveries.t]
    known = [c[(c != UNKNOWN) & (c < NEVER)] for c in columns]
    some = [c for c in known if len(c)]
    return (int(min(c.min() for c in some)), int(max(c.max() for c in some))) if some else (0, 0)


def _flows(run: Run) -> tuple[Ints, Ints]:
    """For each emission the number of its flow, 0 where nothing tells of its delivery; and each delivery's emission."""
    emission = holders(run)
    if not len(emission):
        return emission, emission
    flows = np.zeros(len(run.emissions.step), np.int64)
    delivered = emission[emission >= 0]
    flows[delivered] = delivered + 1
    return flows, emission


def _write_about(stream: Stream, p: Partition, start: int, end: int) -> None:
    """What the whole is of: one slice over all of it."""
    run = p.run
    missing = unplaced(run, p.abilities)
    unknown = [cause for cause in p.abilities if cause in missing]
    args: dict[str, int | str] = {
        "log": run.path, "engine": run.engine, "boundary": run.boundary, "rules": p.rules,
        "not_placed": ", ".join(unknown), "causes": ", ".join(p.causes), "shift_ns": max(0, -start),
        "max_error_ns": p.reconcile.max_error_ns, "negative_parts": p.reconcile.negative_parts,
    }  # fmt: skip
    track = stream.lane("stallbook", 0, about="The recording, and what was not recorded in it.")
    stream.begin(track, start, "run", "run", args)
    stream.end(track, end)
