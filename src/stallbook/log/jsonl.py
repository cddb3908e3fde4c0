"""Reads the interchange format: JSON Lines, version 1. One object a line, the header first.

Beyond the published fields the header may carry `wall_ns`, `preemptions`, `facts` and `notes` (what an earlier reader
merged or dropped), an `arrive` line may have `"t": null` (only the sizes are known), and the event
`{"e": "probe", "t": .., "ns": ..}` is a sample of the machine's speed. A `step` may carry `blocked`: what kept the
first waiting request out, "none", "kv" (KV blocks), "seqs" (the limit of sequences) or "budget" (that of tokens).

A last line without its newline that does not parse was cut off while it was written: it is dropped, and its length
counted as `torn_tail_bytes`.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from json.scanner import make_scanner
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from stallbook.errors import StallbookError
from stallbook.log.draft import Draft
from stallbook.log.jsonl_events import EVENTS, Batch, text
from stallbook.run import ExplicitBaseline

__all__ = ["BOUNDARIES", "DERIVED_NOTES", "HEADER_FIELDS", "VERSION", "read_jsonl"]

VERSION: Final = 1
BOUNDARIES: Final = ("engine", "frontend", "client")
HEADER_FIELDS: Final = (
    "stallbook", "engine", "boundary", "records", "config", "baseline", "wall_ns", "preemptions", "facts", "notes",
)  # fmt: skip
DERIVED_NOTES: Final = frozenset({"emissions_in_eviction", "endless_evictions", "off_path_pauses"})
"""Notes on what is kept: every reader of the same tables counts them again."""

_MAX_LINE: Final = 64 << 20


class _RefusedError(ValueError):
    """JSON to Python's parser, but not to us."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise _RefusedError(f"the key {key!r} stands twice in one object")
    return found


def _refuse(constant: str) -> None:
    raise _RefusedError(f"{constant} is not JSON")


# The C scanner itself: on a short line, the checks around `json.loads` cost as much as the parsing.
_decoder: Any = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_refuse)
_scan: Any = make_scanner(_decoder)


def _parse(line: bytes) -> dict[str, Any]:
    """One object; ValueError says what is wrong with the line."""
    source = line.decode("utf-8").strip()
    try:
        found, end = _scan(source, 0)
    except StopIteration as stop:
        raise ValueError(f"not JSON from column {stop.value + 1} on") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON from column {error.colno} on: {error.msg.lower()}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        if isinstance(error, _RefusedError):
            raise
        raise ValueError("a number of thousands of digits") from None  # the only other complaint of the scanner
    if end != len(source):
        raise ValueError("more than one value on the line")
    if type(found) is not dict:
        raise ValueError("not a JSON object")
    return found


def read_jsonl(path: str | Path) -> Draft:
    """The draft of a JSON Lines file, gzipped or not."""
    draft = Draft(path=str(path), unit="line", facts={"format": "jsonl"})
    with Path(path).open("rb") as raw:
        zipped = raw.peek(2)[:2] == b"\x1f\x8b"
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if zipped else raw
        try:
            _read(draft, _lines(draft, stream))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise StallbookError(
                "truncated", f"the gzip data is damaged ({error})", "copy it again", draft.path
            ) from None
    return draft


def _lines(draft: Draft, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(_MAX_LINE):
        number += 1
        if len(line) == _MAX_LINE:
            raise _line_error(draft, number, f"a line of more than {_MAX_LINE >> 20} MiB", "write one event a line")
        if line.strip():
            yield number, line
        else:
            number += _skip_blank(stream)


def _skip_blank(stream: BinaryIO) -> int:
    """Pass over the blank lines that follow, a buffer at a time: a small gzip file can hold millions. Their number."""
    lines = 0
    while chunk := cast(io.BufferedReader, stream).peek(1):
        blank = chunk[: len(chunk) - len(chunk.lstrip())]
        end = blank.rfind(b"\n") + 1
        lines += blank.count(b"\n")
        stream.read(end)
        if end < len(chunk):
            break
    return lines


def _line_error(draft: Draft, number: int, what: str, remedy: str, slug: str = "format") -> StallbookError:
    return StallbookError(slug, what, remedy, f"{draft.path}:{number}")


def _object(draft: Draft, number: int, line: bytes, last: bool = True) -> dict[str, Any] | None:
    """The object on a line; None for a last line (where it may be the last) that was cut off."""
    try:
        return _parse(line)
    except ValueError as error:
        if last and not line.endswith(b"\n") and not isinstance(error, _RefusedError):
            draft.notes["torn_tail_bytes"] += len(line)
            return None
        what = str(error) if not isinstance(error, UnicodeDecodeError) else f"not UTF-8 at byte {error.start + 1}"
        raise _line_error(draft, number, what, "write one JSON object a line") from None


def _read(draft: Draft, lines: Iterator[tuple[int, bytes]]) -> None:
    number, line = next(lines, (0, b""))
    if not line:
        raise StallbookError("empty", "the file is empty", "a log begins with a header line", draft.path)
    _header(draft, number, _object(draft, number, line.removeprefix(b"\xef\xbb\xbf"), last=False) or {})
    batches = {event: Batch(draft, event, spec) for event, spec in EVENTS.items()}
    for number, line in lines:
        event = _object(draft, number, line)
        if event is None:
            break
        kind = event.get("e")
        batch = batches.get(kind) if type(kind) is str else None
        if batch is not None:
            batch.add(event, number, len(line))
        elif type(kind) is str:
            draft.notes["unknown_events"] += 1
        elif "stallbook" in event:
            raise _line_error(draft, number, "a second header", "keep each recording in a file of its own")
        else:
            raise _line_error(draft, number, 'no event name ("e")', 'name each event, as in {"e": "emit", ...}')
    for batch in batches.values():
        batch.flush()


def _header(draft: Draft, number: int, header: dict[str, Any]) -> None:
    def fail(what: str, remedy: str = "see the interchange format", slug: str = "header") -> StallbookError:
        return _line_error(draft, number, what, remedy, slug)

    version = header.get("stallbook")
    if version is None or "e" in header:
        raise fail("the first line is not a header", 'begin the file with {"stallbook": 1, "engine": ...}')
    if type(version) is not int or version < 1:
        raise fail(f"the version is {version!r:.40}, not a positive integer")
    if version > VERSION:
        raise fail(f"version {version} is newer than this stallbook reads", "upgrade stallbook", "version")
    try:  # numbers beyond a float and half characters would only fail later, in some report
        json.dumps(header, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise fail("a number that is not finite, or a broken character") from None
    draft.engine = _typed(header, "engine", str, "", fail)
    draft.boundary = _typed(header, "boundary", str, "engine", fail)
    if draft.boundary not in BOUNDARIES:
        raise fail(f"boundary is {draft.boundary!r:.40}, not one of {', '.join(BOUNDARIES)}")
    records = _typed(header, "records", list, [], fail)
    if not all(type(record) is str for record in records):
        raise fail("records is not a list of strings")
    draft.records = frozenset(records)
    draft.config = _typed(header, "config", dict, {}, fail)
    draft.facts |= _typed(header, "facts", dict, {}, fail)
    draft.baseline = _baseline(_typed(header, "baseline", dict, {}, fail), fail)
    for name in ("wall_ns", "preemptions"):
        value = _typed(header, name, int, -1, fail)
        if name in header and not 0 <= value < 2**61:
            raise fail(f"{name} = {value} is negative or out of range")
        setattr(draft, name, value)
    for slug, count in _typed(header, "notes", dict, {}, fail).items():
        if type(count) is not int or not 0 <= count < 2**61:
            raise fail(f"the note {slug!r} is not a count")
        if slug not in DERIVED_NOTES:
            draft.notes[slug] += count
    if unknown := len(header.keys() - set(HEADER_FIELDS)):
        draft.notes["unknown_fields"] += unknown
    for name in filter(None, (draft.engine, *draft.records, *draft.notes)):
        try:
            text(name)
        except ValueError as error:
            raise fail(str(error)) from None


def _typed(header: dict[str, Any], name: str, kind: type, default: Any, fail: Any) -> Any:
    value = header.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        raise fail(f"{name} is not {_KINDS[kind]}")
    return value


_KINDS: Final = {str: "a string", list: "a list", dict: "an object", int: "an integer"}


def _baseline(given: dict[str, Any], fail: Any) -> ExplicitBaseline | None:
    if not given:
        return None
    values = [given.get(name, 0) for name in ("fixed_ns", "row_ns", "kv_token_ns")]
    for value in values:
        if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 2**61:
            raise fail(f"baseline holds {value!r:.40}, not a number of nanoseconds")
    return ExplicitBaseline(*map(float, values))
