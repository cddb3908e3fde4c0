"""Writing a `Run` as a native log, through the recorder's own writer with the stamps given."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from stallbook.errors import StallbookError
from stallbook.log.bundle_files import check_ours
from stallbook.log.jsonl import DERIVED_NOTES
from stallbook.record.spool import NO_NAME
from stallbook.record.transcriber import UNKNOWN_ROWS, Transcriber
from stallbook.run import NEVER, UNKNOWN, Ints, Run

__all__ = ["write_bundle"]


def write_bundle(run: Run, path: Path, force: bool = False) -> None:
    """Write `run` to the folder `path`, whole or not at all. Replaces a log that is there only with `force`."""
    if path.exists() or path.is_symlink():
        if not force:
            raise StallbookError("exists", "it exists already", "choose another name, or use --force", str(path))
        check_ours(path)
    if not path.parent.is_dir():
        raise StallbookError("no-folder", "its folder is not there", "create the folder first", str(path))
    part, old = (path.with_name(f".{path.name[:200]}.{os.getpid()}.{what}") for what in ("part", "old"))
    try:
        with Transcriber(part, _manifest(run)) as rec:
            _events(run, rec)
            _Steps(run, rec).write()
        if rec.dropped or rec.errors:
            what = f"{rec.dropped + rec.errors} records could not be written"
            raise StallbookError("unwritable", what, "check the space on the disk", str(path))
        if path.exists():
            path.rename(old)  # whole until its successor is
        try:
            part.rename(path)
        except OSError:
            old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        what = error.strerror or str(error)
        raise StallbookError("unwritable", what, "check the folder and the disk", str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(part, ignore_errors=True)


def _manifest(run: Run) -> dict[str, Any]:
    notes = {slug: count for slug, count in run.notes.items() if slug not in DERIVED_NOTES}
    return {
        "engine": run.engine, "boundary": run.boundary, "records": sorted(run.records), "config": dict(run.config),
        "baseline": dataclasses.asdict(run.baseline) if run.baseline else None, "facts": dict(run.facts),
        "wall_ns": run.wall_ns, "preemptions": run.preemptions, "notes": notes,
    }  # fmt: skip


def _rows(*columns: Ints) -> zip[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _events(run: Run, rec: Transcriber) -> None:
    """Everything but steps. A request's handle is its row."""
    r = run.requests
    for name, t, prompt, limit in zip(
        r.names, *(c.tolist() for c in (r.arrive, r.prompt_tokens, r.max_tokens)), strict=True
    ):
        rec.arrive(name, prompt, limit, t)
    for row, (admit, finish) in enumerate(_rows(r.admit, r.finish)):
        if admit != UNKNOWN:
            rec.admit(row, admit)
        if finish != UNKNOWN:
            rec.finish(row, finish)
    e = run.evictions
    for row, t0, t1, recompute, lost in _rows(e.request, e.t0, e.t1, e.recompute, e.lost_tokens):
        rec.evict(row, recompute, lost, t0)
        if t1 != NEVER:
            rec.readmit(row, t1)
    h = run.holds
    for row, kind, t0, t1 in _rows(h.request, h.kind, h.t0, h.t1):
        rec.hold(row, run.names[kind], t0)
        if t1 != NEVER:
            rec.release(row, run.names[kind], t1)
    for row, t, tokens, boundary in _rows(
        *(getattr(run.deliveries, c) for c in ("request", "t", "tokens", "boundary"))
    ):
        rec.deliver(row, tokens, boundary, t)
    for t0, t1, generation, process in _rows(run.pauses.t0, run.pauses.t1, run.pauses.generation, run.pauses.process):
        rec.pause(t0, t1, generation, run.names[process])
    for t, ns in _rows(run.probes.t, run.probes.ns):
        rec.probe(ns, t)


class _Steps:
    """The steps of a run, one after another."""

    def __init__(self, run: Run, rec: Transcriber) -> None:
        self.run, self.rec = run, rec
        self.names = [rec.name(name) for name in run.names]
        n = len(run.steps.id)
        e, s = run.emissions, run.segments
        by = np.argsort(e.step, kind="stable")
        self.emit = np.searchsorted(e.step[by], np.arange(n + 1)).tolist()
        self.emit_request, self.emit_tokens = e.request[by].tolist(), e.tokens[by].tolist()
        by = np.argsort(s.step, kind="stable")  # in a step by start, as in the run
        self.segment = np.searchsorted(s.step[by], np.arange(n + 1)).tolist()
        columns = (s.t0, s.t1, s.name, s.device, s.request, s.run_delay)
        self.segments = list(_rows(*(column[by] for column in columns)))
        self.member, self.member_request = run.members.start.tolist(), run.members.request.tolist()

    def write(self) -> None:
        """Write them all."""
        s, rec = self.run.steps, self.rec
        columns = (
            s.id, s.t0, s.t1, s.emit, s.graph, s.padded, s.decode_tokens, s.prefill_tokens, s.kv_tokens, s.run_delay,
            s.cpu, self.run.members.known, s.blocked,
        )  # fmt: skip
        for i, row in enumerate(_rows(*columns)):
            step, t0, t1, emit, graph, padded, decode, prefill, kv, delay, cpu, known, blocked = row
            rec.begin(step, t0)
            rec.prefill(prefill)
            self._segments(self.segments[self.segment[i] : self.segment[i + 1]])
            self._batch(i, emit, bool(known))
            rec.counters(cpu, delay)
            rec.end(graph, padded, decode if decode >= 0 else UNKNOWN_ROWS, kv, t1, bool(known), blocked)

    def _segments(self, segments: list[tuple[int, ...]]) -> None:
        """As marks where they lie end to end on the host, else each as a window."""
        rec, end = self.rec, -(2**63)
        for t0, t1, name, device, request, delay in segments:
            if device or delay >= 0 or t0 < end or t1 == t0 or self.names[name] >= NO_NAME:
                rec.window(self.names[name], t0, t1, bool(device), request, delay)
                continue
            if t0 > end > -(2**63):
                rec.leave(end)
            rec.enter(self.names[name], request, t0)
            end = t1
        if end > -(2**63):
            rec.leave(end)

    def _batch(self, i: int, emit: int, known: bool) -> None:
        rec = self.rec
        requests = self.emit_request[self.emit[i] : self.emit[i + 1]]
        tokens = self.emit_tokens[self.emit[i] : self.emit[i + 1]]
        members = self.member_request[self.member[i] : self.member[i + 1]]
        if not requests:
            for request in members:
                rec.member(request)
            return
        if all(n == 1 for n in tokens):
            batch, wanted = rec.batch, set(requests)
            for request in sorted(batch - wanted):
                rec.part(request)
            for request in sorted(wanted - batch):
                rec.join(request)
            rec.emit(emit)
            if members == requests:
                return
        else:
            rec.emit_some(zip(requests, tokens, strict=True), emit)
        if known:
            rec.exact_members()
            for request in members:
                rec.member(request)
