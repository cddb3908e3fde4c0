"""What a client saw, joined to the engine's log: ids, clock, sizes, and the gaps that come of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_files import MS, OTHER, UUID, aiperf, engine, piece, response, said, simple, write

from stallbook.client import Chunk, Request, Seen, join
from stallbook.client.join import joined, matched
from stallbook.errors import StallbookError
from stallbook.partition import partition
from stallbook.run import Run
from stallbook.waits import boundary_gaps

FIVE = [(12, 1), (22, 1), (32, 1), (42, 1), (52, 1)]


def client_rows(run: Run) -> list[tuple[str, float, int]]:
    d = run.deliveries
    mine = d.boundary == 1
    return [
        (run.requests.names[r], t / MS, n)
        for r, t, n in zip(d.request[mine].tolist(), d.t[mine].tolist(), d.tokens[mine].tolist(), strict=True)
    ]


def test_a_gap_is_cut_into_engine_frontend_and_network(tmp_path: Path) -> None:
    late = [(12, 1), (22, 1), (36, 1), (42, 1), (52, 1)]
    run = join(engine(tmp_path), write(tmp_path / "c.jsonl", simple(UUID, *late)))
    waits = boundary_gaps(partition(run), "client")
    parts = {cause: (waits.parts[:, i] / MS).tolist() for i, cause in enumerate(waits.causes)}
    assert ((waits.t1 - waits.t0) / MS).tolist() == [10, 14, 6, 10]
    assert parts["frontend"] == [1, 1, 1, 1]
    assert parts["network"] == [1, 5, 1, 1]
    assert (waits.parts.sum(axis=1) == waits.t1 - waits.t0).all()
    assert run.facts["client"] == {"tool": "simple form", "requests": 1, "matched": 1, "chunks": 5}
    assert run.notes["requests_without_client"] == 1


def test_the_run_itself_is_untouched(tmp_path: Path) -> None:
    before = engine(tmp_path)
    after = join(before, write(tmp_path / "c.jsonl", simple(UUID, *FIVE)))
    assert client_rows(before) == []
    for field in ("requests", "steps", "segments", "emissions", "members"):
        assert getattr(after, field) is getattr(before, field)
    front = after.deliveries.boundary == 0
    assert np.array_equal(after.deliveries.t[front], before.deliveries.t)


def test_joining_again_replaces(tmp_path: Path) -> None:
    run = join(engine(tmp_path), write(tmp_path / "c.jsonl", simple(UUID, *FIVE)))
    again = join(run, write(tmp_path / "d.jsonl", simple(UUID, (13, 5))))
    assert [row[1:] for row in client_rows(again)] == [(13, 5)]


ENGINE_NAMES = {
    "as it is": "r1",
    "completions": "cmpl-r1-0",
    "completions, with digits": "cmpl-r1-0-0123abcd",
    "chat": "chatcmpl-r1",
    "chat, with digits": "chatcmpl-r1-0123abcd",
    "another endpoint": "embd-r1-0-0123abcd",
}


@pytest.mark.parametrize("case", ENGINE_NAMES)
def test_ids_that_belong_together(case: str) -> None:
    seen = Seen("c", "t", [Request("r1", 0, ())])
    assert [row for _, row in matched([ENGINE_NAMES[case]], seen)[0]] == [0]


@pytest.mark.parametrize("name", ["r10", "xr1", "cmpl-r1-0-0123abcd-more", "cmpl-r11-0", "1_cmpl-r1-0-0123abcd"])
def test_ids_that_do_not(name: str) -> None:
    pairs, notes = matched([name], Seen("c", "t", [Request("r1", 0, ())]))
    assert not pairs
    assert notes == {"client_requests_without_match": 1, "requests_without_client": 1}


def test_what_fits_twice_fits_none() -> None:
    pairs, notes = matched(["cmpl-r1-0", "cmpl-r1-1", "cmpl-r2-0"], Seen("c", "t", [Request("r1", 0, ())]))
    assert not pairs
    assert notes["ambiguous_client_requests"] == 1
    pairs, notes = matched(["cmpl-r1-0"], Seen("c", "t", [Request("r1", 0, ()), Request("r1", 0, ())]))
    assert not pairs
    assert notes["ambiguous_client_requests"] == 2


SIZES: dict[str, tuple[list[Chunk], list[int], dict[str, int]]] = {
    "stated": ([Chunk(12, 2), Chunk(32, 0), Chunk(52, 3)], [2, 0, 3], {}),
    "one each": ([Chunk(t) for t in (12, 22, 32, 42, 52)], [1] * 5, {}),
    "one each, and chunks with no text": (
        [Chunk(11, text=False), *(Chunk(t) for t in (12, 22, 32, 42, 52))], [0, 1, 1, 1, 1, 1], {},
    ),
    "a client that could not read for a while": (
        [Chunk(12), Chunk(45), Chunk(52)], [1, 3, 1], {"client_requests_sized_by_clock": 1},
    ),
    "one is left for each that follows": (
        [Chunk(60), Chunk(61), Chunk(62)], [3, 1, 1], {"client_requests_sized_by_clock": 1},
    ),
    "stated in part": (
        [Chunk(12, 1), Chunk(45), Chunk(52, 1)], [1, 3, 1], {"client_requests_sized_by_clock": 1},
    ),
    "an answer that was cut off": ([Chunk(12), Chunk(22)], [1, 1], {"client_requests_sized_by_clock": 1}),
    "more text than tokens": ([Chunk(52)] * 6, [1] * 6, {"client_requests_sized_by_clock": 1}),
    "nothing": ([], [], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", SIZES)
def test_sizes_of_chunks(case: str, tmp_path: Path) -> None:
    chunks, sizes, notes = SIZES[case]
    pieces = tuple(dataclasses.replace(chunk, t=chunk.t * MS) for chunk in chunks)
    run = joined(engine(tmp_path), Seen("c", "t", [Request(UUID, 0, pieces)]))
    assert [n for _, _, n in client_rows(run)] == [n for n in sizes if n]
    assert run.notes.get("empty_deliveries", 0) == sizes.count(0)
    assert run.notes.get("client_chunks_of_several_tokens", 0) == sum(n > 1 for n in sizes)
    assert {k: n for k, n in run.notes.items() if k.endswith("by_clock")} == notes


REFUSED: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "no request of this run": ("no-match", [simple("r7", (12, 1))]),
    "a token before its emission": ("clock", [simple(UUID, (9, 1))]),
    "sent after it arrived": ("clock", [simple(UUID, (12, 1), start=2)]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_belong_together_is_refused(case: str, tmp_path: Path) -> None:
    slug, lines = REFUSED[case]
    with pytest.raises(StallbookError) as error:
        join(engine(tmp_path), write(tmp_path / "c.jsonl", *lines))
    assert error.value.slug == slug
    assert "\n" not in str(error.value)


def test_aiperf_with_stated_and_unstated_sizes(tmp_path: Path) -> None:
    first = aiperf(
        UUID,
        response(12, piece("ka", [5])), response(35, piece("lomi", [6, 7])), response(42, piece("ren", [8])),
        response(52, piece("", [9])), response(52, {"choices": [], "usage": {"completion_tokens": 5}}),
        response(52, "[DONE]"),
    )  # fmt: skip
    second = aiperf(
        OTHER,
        response(11, said("", role="assistant")), response(12, said("ka")), response(22, said("lo")),
        response(32, said("mi")), response(42, said("ren")), response(52, said("tu")),
        response(52, {"choices": [], "usage": {"completion_tokens": 5}}), response(52, "[DONE]"),
    )  # fmt: skip
    run = join(engine(tmp_path), write(tmp_path / "profile_export_raw.jsonl", first, second))
    two, one = run.requests.names
    assert client_rows(run) == [
        (two, 12, 1), (two, 22, 1), (two, 32, 1), (two, 42, 1), (two, 52, 1),
        (one, 12, 1), (one, 35, 2), (one, 42, 1), (one, 52, 1),
    ]  # fmt: skip
    assert run.notes == {"client_chunks_of_several_tokens": 1, "empty_deliveries": 1}
    assert run.facts["client"]["tool"] == "AIPerf"
