"""Joins streams that tell the server's own clock (`Seen.served`) to that server's log.

Their times count from when the server began with the prompt, which is the request's admission in the log. They become
the deliveries at the frontend, in place of the log's own stamps of the same moments. llama.cpp's log holds no id of a
client, so a stream belongs to the request that has as many tokens and whose log tells the same times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np

from stallbook.client.seen import Request, Seen
from stallbook.errors import StallbookError
from stallbook.run import UNKNOWN, Deliveries, Ints, Run

__all__ = ["joined_by_server"]

FRONTEND: Final = 0
FURTHEST_NS: Final = 1_000_000
"""Half of a stream's times have to lie within this of the log's."""


def joined_by_server(run: Run, seen: Seen) -> Run:
    """The run with what the server told each client of its tokens' times."""
    pairs, notes = _matched(run, seen)
    if not pairs:
        what = f"none of its {len(seen.requests):,} streams has the token times of one of the log's requests"
        remedy = "give the streams of this very run; the log has to be llama.cpp's own"
        raise StallbookError("no-match", what, remedy, seen.path)
    rows = {row for _, row, _ in pairs}
    told = [
        (row, int(run.requests.admit[row]) + chunk.t, chunk.tokens) for one, row, _ in pairs for chunk in one.chunks
    ]
    offsets = [offset for *_, found in pairs for offset in found]
    facts = {
        "tool": seen.tool, "requests": len(seen.requests), "matched": len(pairs), "chunks": len(told),
        "log_after_server_ns": {"median": int(median(offsets)), "least": min(offsets), "most": max(offsets)},
    }  # fmt: skip
    counted = Counter(run.notes) + notes + seen.left_out
    return replace(
        run, deliveries=_with(run.deliveries, rows, told), notes=dict(counted), facts={**run.facts, "client": facts}
    )


def _matched(run: Run, seen: Seen) -> tuple[list[tuple[Request, int, list[int]]], Counter[str]]:
    """Each stream with its request, and how much later the log stamped each of its tokens; the nearest pairs first."""
    known = _known(run)
    found = []
    for number, one in enumerate(seen.requests):
        stamps = [chunk.t for chunk in one.chunks for _ in range(chunk.tokens)]
        for row in known:
            prompt = int(run.requests.prompt_tokens[row])
            if -1 not in (prompt, one.prompt_tokens) and prompt != one.prompt_tokens:
                continue
            own = known[row]
            whole = run.requests.finish[row] != UNKNOWN  # else the log may end before the stream
            if len(own) == len(stamps) or (not whole and len(own) < len(stamps)):
                offsets = [late - early for late, early in zip(own, stamps, strict=False)]
                if offsets and (far := median(map(abs, offsets))) <= FURTHEST_NS:
                    found.append((far, number, row, offsets))
    pairs: list[tuple[Request, int, list[int]]] = []
    streams, rows = set(), set()
    for _, number, row, offsets in sorted(found):
        if number not in streams and row not in rows:
            streams.add(number)
            rows.add(row)
            pairs.append((seen.requests[number], row, offsets))
    notes = Counter(
        client_requests_without_match=len(seen.requests) - len(pairs), requests_without_client=len(known) - len(pairs)
    )
    return pairs, +notes


def _known(run: Run) -> dict[int, list[int]]:
    """When the log stamped each token of a request, from its admission on: as it was handed on, else as emitted."""
    d, e = run.deliveries, run.emissions
    own = d.boundary == FRONTEND
    handed = _each(d.request[own], d.t[own], d.tokens[own])
    emitted = _each(e.request, run.steps.emit[e.step], e.tokens)
    admit = run.requests.admit.tolist()
    times = {row: handed.get(row) or stamps for row, stamps in emitted.items() if admit[row] != UNKNOWN}
    return {row: [t - admit[row] for t in stamps] for row, stamps in times.items()}


def _each(request: Ints, t: Ints, tokens: Ints) -> dict[int, list[int]]:
    """The time of each token, by request."""
    times: dict[int, list[int]] = {}
    for who, stamp, n in zip(request.tolist(), t.tolist(), tokens.tolist(), strict=True):
        times.setdefault(who, []).extend([stamp] * n)
    return times


def _with(deliveries: Deliveries, rows: set[int], told: Sequence[tuple[int, int, int]]) -> Deliveries:
    """The deliveries with those of these requests at the frontend replaced."""
    keep = (deliveries.boundary != FRONTEND) | ~np.isin(deliveries.request, sorted(rows))
    new = np.array(told, np.int64).reshape(-1, 3)
    columns: dict[str, Ints] = {
        "request": np.concatenate([deliveries.request[keep], new[:, 0]]),
        "t": np.concatenate([deliveries.t[keep], new[:, 1]]),
        "tokens": np.concatenate([deliveries.tokens[keep], new[:, 2]]),
        "boundary": np.concatenate([deliveries.boundary[keep], np.full(len(new), FRONTEND, np.int64)]),
    }
    order = np.lexsort([columns[name] for name in ("tokens", "t", "boundary", "request")])
    return Deliveries(**{name: column[order] for name, column in columns.items()})
