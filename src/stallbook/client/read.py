"""Reads a client's log: JSON Lines, one request a line. What the lines hold tells the format.

- AIPerf's raw export, `profile_export_raw.jsonl`.
- The simple form: `{"request": ID, "start": NS, "chunks": [{"t": NS, "tokens": N}, ...]}`.
- Streams of llama.cpp with the server's own timings, as server-sent events or their objects, a chunk a line.

Files without a time for each chunk are refused with the reason. Lines may be long (AIPerf keeps the whole prompt), so
one is held at a time. A last line that was cut off is left out and counted.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from stallbook.client.aiperf import aiperf
from stallbook.client.llama import Streams, event, is_stream
from stallbook.client.seen import UNSTATED, Chunk, Request, Seen
from stallbook.client.told import WrongError, clock, count, known, name, stamps
from stallbook.errors import StallbookError

__all__ = ["read"]

_READS: Final = (
    "give AIPerf's profile_export_raw.jsonl (--export-level raw), or the lines that docs/client.md describes"
)
_WHOLE: Final = 1 << 26
"""A file that is one JSON object is read only up to this size, to say what it is."""

_EVENT: Final = re.compile(rb"\s*(?:(?:data|error|event|id|retry) ?)?:")
"""A line of server-sent events."""
_TIMED: Final = 'send "timings_per_token": true with each request; then each chunk tells them'

Reader = Callable[[dict[str, Any], Seen], Request | None]


def read(path: Path) -> Seen:
    """What the client of this log saw."""
    seen = Seen(str(path), "")
    streams = Streams(seen)
    reader: Reader | None = None
    try:
        for number, told in _lines(path, seen):
            where = f"{path}:{number}"
            if reader is None:
                seen.tool, reader = _kind(told, where, streams)
            try:
                one = reader(told, seen)
            except WrongError as wrong:
                raise StallbookError("bad-client", str(wrong), "fix what wrote it, or remove the line", where) from None
            if one is not None:
                seen.requests.append(one)
    except FileNotFoundError:
        raise StallbookError("missing", "there is no such file", "check the path", str(path)) from None
    except (OSError, EOFError, zlib.error) as error:
        what = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        raise StallbookError("unreadable", what, "check the path and the disk", str(path)) from None
    if reader is None:
        raise StallbookError("empty", "holds no request", _READS, str(path))
    if reader == streams.take:
        seen.served, seen.requests = True, list(streams.requests())
        if not seen.requests:
            raise StallbookError("client-format", "streams without the server's timings", _TIMED, str(path))
    return seen


def _lines(path: Path, seen: Seen) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        with cast(BinaryIO, gzip.open(plain)) if packed else plain as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    if _EVENT.match(line):
                        if (told := event(line)) is not None:
                            yield number, told
                        continue
                    told = json.loads(line)
                    if not isinstance(told, dict):
                        raise ValueError
                except (ValueError, RecursionError):
                    if number > 1 and not line.endswith(b"\n"):
                        seen.left_out["torn_client_line"] += 1
                        return
                    raise _foreign(path, number) from None
                yield number, told


def _foreign(path: Path, number: int) -> StallbookError:
    """Not JSON Lines. Load generators write their summaries as one object over many lines: say what that lacks."""
    if number == 1 and path.stat().st_size <= _WHOLE:
        try:
            whole = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            whole = None
        if isinstance(whole, dict):
            return _refused(whole, str(path))
    return StallbookError("foreign", "not a line of JSON", _READS, f"{path}:{number}")


def _kind(told: dict[str, Any], where: str, streams: Streams) -> tuple[str, Reader]:
    if "start_perf_ns" in told and "responses" in told:
        return "AIPerf", aiperf
    if "request" in told and "chunks" in told:
        return "simple form", _simple
    if is_stream(told):
        return "llama.cpp streams", streams.take
    raise _refused(told, where)


def _refused(told: Mapping[str, Any], where: str) -> StallbookError:
    """Why a file of a known kind cannot be joined."""
    if {"benchmarks", "metadata"} <= told.keys() or "benchmarks" in told:
        what = "a report of guidellm: means of requests, no time of each token, so there is no tail to explain"
    elif "stallbook" in told:
        what = "a log of stallbook, not of a client"
    elif "metrics" in told and "metadata" in told:
        what = "AIPerf's export of metrics: no time of each chunk"
    elif {"inter_token_latency", "request_count"} & told.keys():
        what = "AIPerf's summary: means and percentiles, no time of each chunk"
    elif "mean_itl_ms" in told or "itls" in told:
        what = "a result of vLLM's benchmark: no ids of requests, so no gap can be joined to the engine's"
    else:
        what = "no log of a client that stallbook knows"
    return StallbookError("client-format", what, _READS, where)


def _simple(told: dict[str, Any], seen: Seen) -> Request:
    who = name(told["request"])
    start = told.get("start")
    chunks = told["chunks"]
    if not isinstance(chunks, list) or not all(isinstance(chunk, dict) for chunk in chunks):
        raise WrongError("chunks is not a list of objects")
    known(all("t" in chunk for chunk in chunks), "a chunk has no t")
    times = stamps([chunk["t"] for chunk in chunks], start)
    sizes = [count(chunk["tokens"]) if "tokens" in chunk else UNSTATED for chunk in chunks]
    pieces = tuple(Chunk(t, tokens) for t, tokens in zip(times, sizes, strict=True))
    return Request(who, None if start is None else clock(start), pieces)
