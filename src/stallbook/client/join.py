"""Joins what a client saw to an engine's log.

**Ids.** vLLM makes a request's id of the X-Request-ID: it puts the endpoint before it (`cmpl-`, `chatcmpl-`), the
number of the prompt after it (`-0`), and then eight random digits. An engine's request belongs to the client's if
nothing else is around the client's id. A client's id that fits several of the engine's, or that was used twice, fits
none.

**Clock.** A request that arrives before it was sent, or a first token that comes before its emission, says that the
clocks differ.

**Sizes.** A chunk's tokens are what the server stated. Where it stated nothing, and there are as many chunks with text
as tokens, each holds one. Otherwise a chunk holds what the engine had emitted by then and no chunk had brought, at
least one if it has text, and leaves one for each that follows. Such requests are counted.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from stallbook.client.seen import UNSTATED, Chunk, Request, Seen
from stallbook.errors import StallbookError
from stallbook.run import UNKNOWN, Deliveries, Ints, Run

__all__ = ["joined", "matched"]

CLIENT: Final = 1
_CLOCK = "record both on one machine; both clocks have to be time.perf_counter_ns"


def joined(run: Run, seen: Seen) -> Run:
    """The run with a delivery at the client for each chunk; the client's own earlier ones are replaced."""
    pairs, notes = matched(run.requests.names, seen)
    if not pairs:
        what = f"none of its {len(seen.requests):,} requests is one of the log's {len(run.requests.names):,}"
        remedy = "give the client's log of this very run; requests must carry an X-Request-ID"
        raise StallbookError("no-match", what, remedy, seen.path)
    stamps = _emitted(run)
    rows: list[tuple[int, int, int]] = []
    for request, row in pairs:
        _same_clock(run, seen, request, row, stamps.get(row, []))
        sizes = _sizes(request.chunks, stamps.get(row, []), notes)
        for chunk, tokens in zip(request.chunks, sizes, strict=True):
            if tokens:
                rows.append((row, chunk.t, tokens))
            else:
                notes["empty_deliveries"] += 1
    notes["client_chunks_of_several_tokens"] = sum(tokens > 1 for _, _, tokens in rows)
    facts = {"tool": seen.tool, "requests": len(seen.requests), "matched": len(pairs), "chunks": len(rows)}
    counted = Counter(run.notes) + notes + seen.left_out
    return replace(
        run, deliveries=_with(run.deliveries, rows), notes=dict(counted), facts={**run.facts, "client": facts}
    )


def matched(names: Sequence[str], seen: Seen) -> tuple[list[tuple[Request, int]], Counter[str]]:
    """Each of the client's requests that is exactly one of the engine's, with its row; what did not match, counted."""
    notes: Counter[str] = Counter()
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        for candidate in _inside(name):
            rows.setdefault(candidate, []).append(row)
    asked = Counter(request.name for request in seen.requests)
    pairs = []
    for request in seen.requests:
        found = rows.get(request.name, [])
        if len(found) > 1 or asked[request.name] > 1:
            notes["ambiguous_client_requests"] += 1
        elif found:
            pairs.append((request, found[0]))
        else:
            notes["client_requests_without_match"] += 1
    engine = {row for _, row in pairs}
    if missed := len(names) - len(engine):
        notes["requests_without_client"] = missed
    return pairs, notes


def _inside(name: str) -> set[str]:
    """Every id of a client from which an engine's request may have got this name."""
    found = {name}
    for begin in (name, re.sub(r"^[a-z_]+-", "", name)):
        for end in (begin, re.sub(r"-[0-9a-f]{8}$", "", begin)):
            found |= {end, re.sub(r"-\d+$", "", end)}
    return found - {""}


def _emitted(run: Run) -> dict[int, list[int]]:
    """When each token of each request was emitted."""
    e = run.emissions
    request, stamps = np.repeat(e.request, e.tokens), np.repeat(run.steps.emit[e.step], e.tokens)
    edges = np.flatnonzero(np.diff(request)) + 1
    starts = [0, *edges.tolist()] if len(request) else []
    return {int(request[a]): stamps[a:b].tolist() for a, b in zip(starts, [*starts[1:], len(request)], strict=True)}


def _same_clock(run: Run, seen: Seen, request: Request, row: int, stamps: Sequence[int]) -> None:
    """Refuse what one clock cannot have stamped."""
    arrive = int(run.requests.arrive[row])
    first = next((chunk.t for chunk in request.chunks if chunk.text and chunk.tokens), None)
    if arrive != UNKNOWN and request.start is not None and arrive < request.start:
        what = f"request {request.name!r} reached the engine at {arrive}, before the client sent it at {request.start}"
    elif first is not None and stamps and first < stamps[0]:
        what = f"request {request.name!r} got its first token at {first}, before the engine emitted it at {stamps[0]}"
    else:
        return
    raise StallbookError("clock", what, _CLOCK, seen.path)


def _sizes(chunks: Sequence[Chunk], stamps: Sequence[int], notes: Counter[str]) -> list[int]:
    """The tokens of each chunk."""
    if all(chunk.tokens != UNSTATED for chunk in chunks):
        return [chunk.tokens for chunk in chunks]
    least = [int(chunk.text) if chunk.tokens == UNSTATED else chunk.tokens for chunk in chunks]
    total, left, brought = len(stamps), sum(least), 0
    if left == total:
        return least
    notes["client_requests_sized_by_clock"] += 1
    sizes = []
    for chunk, size in zip(chunks, least, strict=True):
        left -= size
        if chunk.tokens == UNSTATED:
            emitted = bisect_right(stamps, chunk.t)
            size = max(size, min(emitted, total - left) - brought)
        sizes.append(size)
        brought += size
    return sizes


def _with(deliveries: Deliveries, rows: Sequence[tuple[int, int, int]]) -> Deliveries:
    """These deliveries at the client beside those at the frontend, in order."""
    keep = deliveries.boundary != CLIENT
    new = np.array(rows, np.int64).reshape(-1, 3)
    columns: dict[str, Ints] = {
        "request": np.concatenate([deliveries.request[keep], new[:, 0]]),
        "t": np.concatenate([deliveries.t[keep], new[:, 1]]),
        "tokens": np.concatenate([deliveries.tokens[keep], new[:, 2]]),
        "boundary": np.concatenate([deliveries.boundary[keep], np.full(len(new), CLIENT, np.int64)]),
    }
    order = np.lexsort([columns[name] for name in ("tokens", "t", "boundary", "request")])
    return Deliveries(**{name: column[order] for name, column in columns.items()})
