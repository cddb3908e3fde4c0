"""Writes the interchange format. What is written reads back as an equal run, but for its path.

Requests come first, then each step with its segments and emissions, then the rest. Beyond the published fields it
writes what `stallbook.log.jsonl` documents.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np

from stallbook.errors import StallbookError
from stallbook.log.arrays import stable_order
from stallbook.log.jsonl import DERIVED_NOTES, VERSION
from stallbook.log.jsonl_events import BLOCKED, BOUNDARY, GRAPH, LANE, MODE
from stallbook.run import NEVER, UNKNOWN, Ints, Run

__all__ = ["atomic", "json_lines", "write_jsonl"]

_BLOCK: Final = 8192


def write_jsonl(run: Run, path: str | os.PathLike[str], force: bool = False) -> None:
    """Writes `run` to `path`, whole or not at all, for its owner's eyes; gzipped if the name ends in .gz."""
    with atomic(Path(path), force) as file:
        zipped = str(path).endswith(".gz")
        target = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) if zipped else file
        with io.TextIOWrapper(cast(BinaryIO, target), encoding="utf-8", newline="\n") as text:
            text.writelines(json_lines(run))


@contextmanager
def atomic(path: Path, force: bool) -> Iterator[BinaryIO]:
    """A file that takes its name only when it is complete; refuses an existing one without `force`."""
    if path.is_dir():
        raise StallbookError("exists", "a folder of that name exists", "choose another name", str(path))
    if not force and os.path.lexists(path):
        raise StallbookError("exists", "it exists already", "choose another name, or overwrite with --force", str(path))
    if path.exists() and not path.is_file():  # a device or a pipe: renaming onto it would remove it
        raise StallbookError("exists", "it is not a regular file", "choose another name", str(path))
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:200]}.", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(temporary).replace(path)
        temporary = None
    except (OSError, ValueError) as error:
        what = f"cannot be written ({getattr(error, 'strerror', None) or error})"
        raise StallbookError("unwritable", what, "choose a folder that exists and has room", str(path)) from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()


def json_lines(run: Run) -> Iterator[str]:
    """The lines of a run, each with its newline."""
    who = [json.dumps(name) for name in run.requests.names]
    names = [json.dumps(name) for name in run.names]
    yield json.dumps(_header(run), allow_nan=False, default=str) + "\n"
    yield from _requests(run, who)
    yield from _steps(run, who, names)
    yield from _windows(run, who, names)


def _header(run: Run) -> dict[str, Any]:
    header: dict[str, Any] = {"stallbook": VERSION, "engine": run.engine, "boundary": run.boundary}
    header |= {"records": sorted(run.records), "config": dict(run.config)}
    if run.baseline is not None:
        names = ("fixed_ns", "row_ns", "kv_token_ns")
        header["baseline"] = {name: getattr(run.baseline, name) for name in names}
    if run.wall_ns >= 0:
        header["wall_ns"] = run.wall_ns
    if run.preemptions >= 0:
        header["preemptions"] = run.preemptions
    if run.facts:
        header["facts"] = dict(run.facts)
    if notes := {slug: count for slug, count in run.notes.items() if slug not in DERIVED_NOTES}:
        header["notes"] = notes
    return header


def _line(event: str, **fields: str | int | None) -> str:
    """One line; a field of None is left out, a string is JSON already."""
    body = "".join(f',"{name}":{value}' for name, value in fields.items() if value is not None)
    return f'{{"e":"{event}"{body}}}\n'


def _known(value: int, unknown: int = -1) -> int | None:
    return None if value == unknown else value


def _rows(*columns: Ints) -> Iterator[tuple[int, ...]]:
    """The rows of a table as plain integers, a block at a time."""
    for low in range(0, len(columns[0]), _BLOCK):
        yield from zip(*(column[low : low + _BLOCK].tolist() for column in columns), strict=True)


def _requests(run: Run, who: list[str]) -> Iterator[str]:
    r = run.requests
    seen = np.zeros(len(who) + 1, dtype=np.bool_)  # the last place takes the -1 of segments without an owner
    for table in (run.segments, run.emissions, run.evictions, run.holds, run.deliveries, run.members):
        seen[table.request] = True
    for i, (arrive, admit, finish, prompt, limit) in enumerate(
        _rows(r.arrive, r.admit, r.finish, r.prompt_tokens, r.max_tokens)
    ):
        times = (arrive, admit, finish)
        if arrive != UNKNOWN or prompt >= 0 or limit >= 0 or (set(times) == {UNKNOWN} and not seen[i]):
            t = "null" if arrive == UNKNOWN else arrive
            yield _line("arrive", request=who[i], t=t, prompt_tokens=_known(prompt), max_tokens=_known(limit))
        for event, t in (("admit", admit), ("finish", finish)):
            if t != UNKNOWN:
                yield _line(event, request=who[i], t=t)


def _steps(run: Run, who: list[str], names: list[str]) -> Iterator[str]:
    s, g, e, m = run.steps, run.segments, run.emissions, run.members
    graphs = {code: json.dumps(word) for word, code in GRAPH.items()}
    lanes = {code: json.dumps(word) for word, code in LANE.items()}
    blocks = {code: json.dumps(word) for word, code in BLOCKED.items()}
    n = len(s.id)
    by_segment, by_emission = stable_order(g.step, n), stable_order(e.step, n)
    of_segments = np.searchsorted(g.step[by_segment], np.arange(n + 1))
    of_emissions = np.searchsorted(e.step[by_emission], np.arange(n + 1))
    columns = (s.id, s.t0, s.t1, s.padded, s.decode_tokens, s.prefill_tokens, s.kv_tokens, s.run_delay, s.cpu)
    rows = _rows(
        *columns, s.blocked, s.graph, s.emit, m.known, m.start[:-1], m.start[1:], of_segments[1:], of_emissions[1:]
    )  # fmt: skip
    segment, emission = 0, 0
    for step, t0, t1, padded, decode, prefill, kv, delay, cpu, block, graph, emit, known, low, high, last, end in rows:
        batch = None if not known else "[" + ",".join(who[r] for r in m.request[low:high].tolist()) + "]"
        yield _line(
            "step", id=step, t0=t0, t1=t1, graph=graphs[graph] if graph else None, padded=_known(padded),
            decode_tokens=_known(decode), prefill_tokens=_known(prefill), kv_tokens=_known(kv), members=batch,
            run_delay_ns=_known(delay), cpu_ns=_known(cpu), blocked=blocks.get(block),
        )  # fmt: skip
        of = by_segment[segment:last]
        segment = last
        fields = (g.name[of], g.device[of], g.t0[of], g.t1[of], g.run_delay[of], g.request[of])
        for name, device, start, stop, wait, owner in _rows(*fields):
            yield _line(
                "segment", step=step, name=names[name], lane=lanes[device], t0=start, t1=stop,
                run_delay_ns=_known(wait), request=who[owner] if owner >= 0 else None,
            )  # fmt: skip
        if end > emission:
            of = by_emission[emission:end]
            emission = end
            tokens = ",".join(f"{who[r]}:{k}" for r, k in _rows(e.request[of], e.tokens[of]))
            yield f'{{"e":"emit","step":{step},"t":{emit},"tokens":{{{tokens}}}}}\n'


def _windows(run: Run, who: list[str], names: list[str]) -> Iterator[str]:
    p, v, h, d = run.pauses, run.evictions, run.holds, run.deliveries
    modes = {code: json.dumps(word) for word, code in MODE.items()}
    boundaries = {code: json.dumps(word) for word, code in BOUNDARY.items()}
    for t0, t1, generation, process in _rows(p.t0, p.t1, p.generation, p.process):
        yield _line("gc", t0=t0, t1=t1, generation=_known(generation), process=names[process])
    for request, t0, t1, recompute, lost in _rows(v.request, v.t0, v.t1, v.recompute, v.lost_tokens):
        yield _line("evict", request=who[request], t=t0, mode=modes.get(recompute), lost_tokens=_known(lost))
        if t1 != NEVER:
            yield _line("readmit", request=who[request], t=t1)
    for request, kind, t0, t1 in _rows(h.request, h.kind, h.t0, h.t1):
        yield _line("hold", request=who[request], kind=names[kind], t0=t0, t1="null" if t1 == NEVER else t1)
    for request, t, tokens, boundary in _rows(d.request, d.t, d.tokens, d.boundary):
        yield _line("deliver", request=who[request], t=t, tokens=tokens, boundary=boundaries[boundary])
    for t, ns in _rows(run.probes.t, run.probes.ns):
        yield _line("probe", t=t, ns=ns)
