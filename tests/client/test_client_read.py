"""What a client wrote: each format, and everything that may be wrong with it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from client_files import MS, UUID, aiperf, piece, response, said, simple, write

from stallbook.client import Chunk, Request, read
from stallbook.errors import StallbookError

DATA = Path(__file__).parents[1] / "data" / "client"


def chunks(tmp_path: Path, *lines: dict[str, Any]) -> list[tuple[float, int]]:
    """The chunks of the first request."""
    (one,) = read(write(tmp_path / "c.jsonl", *lines)).requests
    return [(chunk.t / MS, chunk.tokens) for chunk in one.chunks]


def test_the_simple_form(tmp_path: Path) -> None:
    seen = read(write(tmp_path / "c.jsonl", simple("r1", (5, 2), (6,)), simple("r2", start=None)))
    pieces = (Chunk(5 * MS, 2), Chunk(6 * MS))
    assert seen.requests == [Request("r1", MS // 2, pieces), Request("r2", None, ())]


def test_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(simple("r1", (5, 2))).encode()))
    assert read(path).requests[0].name == "r1"


STATED: dict[str, tuple[list[dict[str, Any]], list[tuple[float, int]]]] = {
    "token ids": ([response(5, piece("a", [1, 2])), response(6, piece("", []))], [(5, 2), (6, 0)]),
    "usage so far": (
        [response(t, piece("a", usage={"completion_tokens": n})) for t, n in ((5, 2), (6, 3))], [(5, 2), (6, 1)],
    ),
    "log probabilities": (
        [response(5, {"choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["a", "b"]}}]})], [(5, 2)],
    ),
    "log probabilities of chat": (
        [response(5, {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{}]}}]})], [(5, 1)],
    ),
    "not at all": ([response(5, piece("a")), response(6, piece(""))], [(5, -1), (6, -1)]),
    "a chunk of a role": ([response(5, said("", role="assistant")), response(6, said("a"))], [(5, 0), (6, -1)]),
    "usage alone is no chunk": ([response(5, {"choices": [], "usage": {"completion_tokens": 2}})], []),
    "an end mark is none": ([response(5, "[DONE]")], []),
    "two in one event": ([response(5, piece("a", [1]), piece("b", [2]))], [(5, 1), (5, 1)]),
    "unknown packets": ([{"perf_ns": 5 * MS, "packets": [{"name": "comment", "value": "ping"}]}], []),
}  # fmt: skip


@pytest.mark.parametrize("case", STATED)
def test_tokens_of_a_chunk(case: str, tmp_path: Path) -> None:
    responses, expected = STATED[case]
    assert chunks(tmp_path, aiperf(UUID, *responses)) == expected


LEFT_OUT: dict[str, tuple[dict[str, Any], str]] = {
    "no id": (aiperf(None, response(5, piece("a"))), "unnamed_client_requests"),
    "several choices": (
        aiperf(UUID, response(5, {"choices": [{"index": 1, "text": "a"}]})), "client_requests_of_several_choices",
    ),
    "not streamed": (aiperf(UUID, {"perf_ns": 5 * MS, "text": "{}"}), "unstreamed_client_requests"),
    "failed": (aiperf(UUID, response(5, piece("a")), error={"code": 500}), "failed_client_requests"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_is_counted(case: str, tmp_path: Path) -> None:
    line, note = LEFT_OUT[case]
    seen = read(write(tmp_path / "c.jsonl", line))
    assert seen.left_out == {note: 1}
    assert len(seen.requests) == (case == "failed")


def test_the_id_may_stand_in_the_headers(tmp_path: Path) -> None:
    line = aiperf(None, response(5, piece("a")), request_headers={"x-request-ID": "r9"})
    assert read(write(tmp_path / "c.jsonl", line)).requests[0].name == "r9"


REFUSED: dict[str, tuple[str, Any]] = {
    "guidellm": ("client-format", {"metadata": {}, "benchmarks": [{"metrics": {}}]}),
    "AIPerf's summary": ("client-format", {"request_count": {}, "inter_token_latency": {"avg": 1.0}}),
    "AIPerf's metrics": ("client-format", {"metadata": {}, "metrics": {"request_latency": {}}}),
    "vLLM's benchmark": ("client-format", {"mean_itl_ms": 1.0}),
    "our own log": ("client-format", {"stallbook": 1, "engine": "x"}),
    "something else": ("client-format", {"a": 1}),
    "not an object": ("foreign", [1]),
    "no time": ("bad-client", {"request": "r1", "chunks": [{"tokens": 1}]}),
    "a time with a point": ("bad-client", {"request": "r1", "chunks": [{"t": 1.5}]}),
    "a time beyond all": ("bad-client", {"request": "r1", "chunks": [{"t": 2**63}]}),
    "a truth for a time": ("bad-client", {"request": "r1", "chunks": [{"t": True}]}),
    "times that fall": ("bad-client", simple("r1", (6, 1), (5, 1))),
    "a chunk before the start": ("bad-client", simple("r1", (6, 1), start=7)),
    "tokens below none": ("bad-client", simple("r1", (6, -3))),
    "chunks that are no list": ("bad-client", {"request": "r1", "chunks": 7}),
    "a chunk that is no object": ("bad-client", {"request": "r1", "chunks": [7]}),
    "no id": ("bad-client", {"request": "", "chunks": []}),
    "an id with a line break": ("bad-client", {"request": "a\nb", "chunks": []}),
    "no metadata": ("bad-client", {"start_perf_ns": 1, "responses": []}),
    "responses that are no list": ("bad-client", {"metadata": {}, "start_perf_ns": 1, "responses": {}}),
    "a response that is no object": ("bad-client", aiperf(UUID) | {"responses": [3]}),
    "a response without a time": ("bad-client", aiperf(UUID, {"packets": []})),
    "no start": ("bad-client", aiperf(UUID) | {"start_perf_ns": None}),
    "packets that are no list": ("bad-client", aiperf(UUID, {"perf_ns": MS, "packets": 1})),
    "a packet that is no object": ("bad-client", aiperf(UUID, {"perf_ns": MS, "packets": [1]})),
    "data that is cut off": ("bad-client", aiperf(UUID, response(5, '{"choices": ['))),
    "usage that falls": (
        "bad-client",
        aiperf(
            UUID, response(5, piece("a", usage={"completion_tokens": 2})),
            response(6, piece("a", usage={"completion_tokens": 1})),
        ),
    ),
    "usage that is no number": ("bad-client", aiperf(UUID, response(5, piece("a", usage={"completion_tokens": "2"})))),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(case: str, tmp_path: Path) -> None:
    slug, line = REFUSED[case]
    path = write(tmp_path / "c.jsonl", line)
    with pytest.raises(StallbookError) as error:
        read(path)
    assert error.value.slug == slug
    assert str(path) in str(error.value)
    assert str(error.value).isprintable()


def test_a_summary_over_many_lines_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps({"metadata": {"version": 1}, "args": {}, "benchmarks": []}, indent=2))
    with pytest.raises(StallbookError, match="guidellm: means of requests, no time of each token"):
        read(path)


NO_SUCH_FILE = [
    (b"", "empty"), (b"\n\n", "empty"), (b"hello\n", "foreign"), (b"\xff\xfe\x00", "foreign"),
    (b"\x1f\x8bxx", "unreadable"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "slug"), NO_SUCH_FILE)
def test_what_is_no_such_file(content: bytes, slug: str, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(content)
    with pytest.raises(StallbookError) as error:
        read(path)
    assert error.value.slug == slug


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(StallbookError, match="no such file"):
        read(tmp_path / "c.jsonl")
    with pytest.raises(StallbookError, match="cannot be read"):
        read(tmp_path)


def test_a_last_line_that_was_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", simple("r1", (5, 1)))
    path.write_text(path.read_text() + '{"request": "r2", "chu')
    seen = read(path)
    assert [one.name for one in seen.requests] == ["r1"]
    assert seen.left_out == {"torn_client_line": 1}


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", simple("r1", (5, 1)))
    path.write_text(path.read_text() + "{\n" + path.read_text())
    with pytest.raises(StallbookError, match=r"c\.jsonl:2: not a line of JSON"):
        read(path)


def test_what_aiperf_really_writes() -> None:
    """Two chats with the usage in each chunk, two completions without (AIPerf 0.13.0, vLLM 0.32.0)."""
    seen = read(DATA / "aiperf-0.13.0.jsonl")
    assert seen.tool == "AIPerf"
    assert not seen.left_out
    chats, completions = seen.requests[:2], seen.requests[2:]
    for one in chats:
        assert sum(chunk.tokens for chunk in one.chunks) == 24
        assert one.chunks[0].tokens == 0  # the role
        assert not one.chunks[0].text
    for one in completions:
        assert one.chunks
        assert {chunk.tokens for chunk in one.chunks} == {-1}
    for one in seen.requests:
        assert one.start is not None
        assert one.start < one.chunks[0].t
