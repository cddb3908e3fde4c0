"""Reads the raw logs of the post: one `.npz` of float arrays, times in seconds since the engine started.

What it lacks stays unrecorded: KV tokens, admissions, finishes, batches. Its emissions and evictions are those of
finished requests only, and its evictions are always swaps. Nothing in a file is trusted: no pickles, no array larger
than it says, no more than `LIMIT` bytes in all.
"""

from __future__ import annotations

import json
import math
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.errors import StallbookError
from stallbook.log.draft import Draft
from stallbook.run import CAPTURED, EAGER, NEVER, NO_GRAPH, Ints

__all__ = ["LIMIT", "read_npz"]

LIMIT: Final = 2 << 30
"""The most bytes that a file may unpack to; a minute of serving takes about five million."""

_COLUMNS: Final = {"steps": 7, "segs": 4, "gcs": 3, "emissions": 3, "evictions": 3, "requests": 5}
_SEGMENTS: Final = ("tok", "swap", "prefill", "decode")
_ROUNDING: Final = 2
"""Nanoseconds by which rounding alone may move two stamps past each other."""
_BROKEN = (
    ValueError, OSError, EOFError, KeyError, RuntimeError, NotImplementedError, MemoryError, OverflowError, SyntaxError,
    TypeError, struct.error, zipfile.BadZipFile, zlib.error, UserWarning,
)  # fmt: skip

Floats = npt.NDArray[np.float64]


def read_npz(path: str | Path) -> Draft:
    """The draft of one of the post's logs."""
    source = _Source(str(path))
    draft = Draft(path=str(path), unit="row", engine="the post's engine", facts={"format": "npz"})
    draft.labels = {"segments": "segs", "pauses": "gcs", "emits": "emissions", "arrivals": "requests"}
    draft.records = frozenset({"segments", "gc", "evictions", "graph"})
    draft.config = source.config()
    wall = source.scalar("wall")
    draft.wall_ns = int(_nanoseconds(source, "wall", np.array([wall]))[0])
    steps = _steps(draft, source)
    _segments(draft, source, steps)
    _pauses(draft, source)
    _requests(draft, source)
    _emissions(draft, source, steps)
    _evictions(draft, source)
    return draft


class _Source:
    """The arrays of a file, each checked before it is unpacked."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
        except _BROKEN:
            raise self.error("truncated", "the zip directory is missing or damaged", "copy the file again") from None
        entries = self.zip.infolist()
        total = sum(entry.file_size for entry in entries)
        if total > LIMIT:
            what = f"it unpacks to {total} bytes, more than the {LIMIT} that a log may have"
            raise self.error("too-large", what, "record a shorter run")
        names = {entry.filename for entry in entries}
        missing = [name for name in (*_COLUMNS, "wall", "config") if f"{name}.npy" not in names]
        if missing:
            what = f"not one of the post's logs: no array {missing[0]!r}"
            raise self.error("foreign", what, "give a log that its run.py wrote")

    def error(self, slug: str, what: str, remedy: str, place: str = "") -> StallbookError:
        return StallbookError(slug, what, remedy, f"{self.path}: {place}" if place else self.path)

    def _array(self, name: str, kinds: str) -> npt.NDArray[Any]:
        try:
            with warnings.catch_warnings(), self.zip.open(f"{name}.npy") as entry:
                warnings.simplefilter("error")
                shape, dtype = _npy_header(entry)
                size = self.zip.getinfo(f"{name}.npy").file_size
            if dtype.hasobject or dtype.kind not in kinds:
                raise self.error("foreign", f"an array of {dtype}, not of numbers", "pickles are never read", name)
            if math.prod(shape) * dtype.itemsize > size:
                raise self.error("truncated", f"an array of shape {shape} in {size} bytes", "copy it again", name)
            with warnings.catch_warnings(), self.zip.open(f"{name}.npy") as entry:
                warnings.simplefilter("error")
                array: npt.NDArray[Any] = np.lib.format.read_array(entry, allow_pickle=False)
                entry.read()  # to the end, where the checksum is
        except StallbookError:
            raise
        except _BROKEN as error:
            what = f"the array cannot be read ({type(error).__name__})"
            raise self.error("truncated", what, "copy the file again", name) from None
        return array

    def table(self, name: str) -> Floats:
        """A table of floats with the right number of columns."""
        array = self._array(name, "fiu")
        if array.size == 0 and array.ndim <= 2:
            return np.empty((0, _COLUMNS[name]))
        if array.ndim != 2 or array.shape[1] != _COLUMNS[name]:
            what = f"shape {array.shape}, not (n, {_COLUMNS[name]})"
            raise self.error("foreign", what, "give a log that the post's run.py wrote", name)
        return array.astype(np.float64)

    def scalar(self, name: str) -> float:
        """A single float."""
        array = self._array(name, "fiu")
        if array.size != 1:
            raise self.error("foreign", "not a single number", "give a log that the post's run.py wrote", name)
        return float(array.reshape(-1)[0])

    def config(self) -> dict[str, Any]:
        """The settings, which are JSON in a string."""
        array = self._array("config", "U")
        try:
            config = json.loads(str(array.reshape(-1)[0]), parse_constant=lambda constant: float(f"not {constant}"))
            json.dumps(config, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, RecursionError, IndexError):
            config = None
        if not isinstance(config, dict):
            raise self.error("foreign", "not a JSON object", "give a log that the post's run.py wrote", "config")
        return config


def _npy_header(entry: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(entry)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(entry)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(entry)
    else:
        raise ValueError("an unknown version of the format")
    return shape, dtype


def _nanoseconds(source: _Source, name: str, seconds: Floats) -> Ints:
    bad = ~(np.abs(seconds) < 2**60 / 1e9)
    if bad.any():
        at = int(np.argmax(bad))
        what = f"a time of {seconds[at]} s"
        raise source.error("range", what, "fix what wrote the log", f"{name}[{at}]")
    return np.rint(seconds * 1e9).astype(np.int64)


def _whole(source: _Source, name: str, numbers: Floats, low: int, high: int = 2**40) -> Ints:
    bad = ~((numbers >= low) & (numbers < high) & (numbers == np.floor(numbers)))
    if bad.any():
        at = int(np.argmax(bad))
        what = f"{numbers[at]} where a whole number from {low} to {high - 1} stands"
        raise source.error("range", what, "fix what wrote the log", f"{name}[{at}]")
    return numbers.astype(np.int64)


def _steps(draft: Draft, source: _Source) -> tuple[Ints, Ints]:
    table = source.table("steps")
    t0, t1 = (_nanoseconds(source, "steps", table[:, i]) for i in (0, 1))
    decode, prefill, preempted = (_whole(source, "steps", table[:, i], 0) for i in (2, 3, 5))
    size = _whole(source, "steps", table[:, 4], -1)
    draft.preemptions = int(preempted.sum())
    graph = np.where(size > 0, CAPTURED, np.where(size == 0, EAGER, NO_GRAPH))
    rows = np.arange(len(t0))
    draft.extend(
        "steps",
        {
            "id": rows, "t0": t0, "t1": t1, "graph": graph, "padded": np.where(size > 0, size, -1),
            "decode_tokens": decode, "prefill_tokens": prefill,
        },
        rows,
    )  # fmt: skip
    return t0, t1


def _segments(draft: Draft, source: _Source, steps: tuple[Ints, Ints]) -> None:
    table = source.table("segs")
    step = _whole(source, "segs", table[:, 0], 0, max(len(steps[0]), 1))
    code = _whole(source, "segs", table[:, 1], 0, len(_SEGMENTS))
    if len(step) and not len(steps[0]):
        raise source.error("unknown-step", "there is no step 0", "fix what wrote the log", "segs[0]")
    t0, t1 = (_nanoseconds(source, "segs", table[:, i]) for i in (2, 3))
    moved0 = _clamp(t0, steps[0][step], above=True)
    moved1 = np.maximum(_clamp(t1, steps[1][step], above=False), np.minimum(moved0, t1 + _ROUNDING))
    # The next segment of the same step, where it starts before this one ends by no more than rounding explains.
    over = np.flatnonzero(
        (step[1:] == step[:-1]) & (moved0[1:] < moved1[:-1]) & (moved1[:-1] - moved0[1:] <= _ROUNDING)
    )
    over = over[(moved0[over] < moved0[over + 1]) & (moved1[over] < moved1[over + 1])]
    moved0[over + 1] = moved1[over]
    rounded = int(np.count_nonzero(moved0 != t0) + np.count_nonzero(moved1 != t1))
    if rounded:
        draft.notes["rounded_edges"] += rounded
    names = np.array([draft.name(name) for name in _SEGMENTS])
    draft.extend("segments", {"step": step, "name": names[code], "t0": moved0, "t1": moved1}, np.arange(len(step)))


def _clamp(t: Ints, edge: Ints, above: bool) -> Ints:
    """Stamps that lie past an edge by no more than rounding explains, moved onto it."""
    past = edge - t if above else t - edge
    return np.where((past > 0) & (past <= _ROUNDING), edge, t)


def _pauses(draft: Draft, source: _Source) -> None:
    table = source.table("gcs")
    t0, t1 = (_nanoseconds(source, "gcs", table[:, i]) for i in (0, 1))
    generation = _whole(source, "gcs", table[:, 2], 0)
    process = draft.name("engine")
    draft.extend("pauses", {"t0": t0, "t1": t1, "generation": generation, "process": process}, np.arange(len(t0)))


def _who(draft: Draft, source: _Source, name: str, numbers: Floats) -> Ints:
    ids, inverse = np.unique(_whole(source, name, numbers, 0), return_inverse=True)
    rows = np.array([draft.request(str(i)) for i in ids.tolist()], dtype=np.int64)
    return rows[inverse]


def _requests(draft: Draft, source: _Source) -> None:
    table = source.table("requests")
    draft.extend(
        "arrivals",
        {
            "request": _who(draft, source, "requests", table[:, 0]),
            "t": _nanoseconds(source, "requests", table[:, 1]),
            "prompt_tokens": _whole(source, "requests", table[:, 2], 0),
            "max_tokens": _whole(source, "requests", table[:, 3], 0),
        },
        np.arange(len(table)),
    )


def _emissions(draft: Draft, source: _Source, steps: tuple[Ints, Ints]) -> None:
    table = source.table("emissions")
    step = _whole(source, "emissions", table[:, 2], 0)
    t = _nanoseconds(source, "emissions", table[:, 1])
    known = step < len(steps[0])
    t[known] = _clamp(t[known], steps[0][step[known]], above=True)
    draft.extend(
        "emits",
        {"step": step, "t": t, "request": _who(draft, source, "emissions", table[:, 0]), "tokens": 1},
        np.arange(len(t)),
    )


def _evictions(draft: Draft, source: _Source) -> None:
    table = source.table("evictions")
    ended = ~np.isnan(table[:, 2])
    t1 = np.full(len(table), NEVER)
    t1[ended] = _nanoseconds(source, "evictions", table[ended, 2])
    t0 = _nanoseconds(source, "evictions", table[:, 1])
    request = _who(draft, source, "evictions", table[:, 0])
    draft.extend("evictions", {"request": request, "t0": t0, "t1": t1, "recompute": 0}, np.arange(len(t1)))
