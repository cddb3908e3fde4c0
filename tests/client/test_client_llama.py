"""Streams of llama.cpp with the server's own timings: each form, what may be wrong, and the join to its log."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stallbook as sb
from stallbook.cli import main
from stallbook.client import Chunk, join, read
from stallbook.errors import StallbookError
from stallbook.run import Run

DATA = Path(__file__).parents[1] / "data" / "llama"
US = 1000


def chunk(n: int, ms: float, who: str | None = "chatcmpl-a", prompt_ms: float = 5.0, **more: Any) -> dict[str, Any]:
    """One chunk: of the OpenAI endpoints, or of the server's own."""
    timings = {"cache_n": 2, "prompt_n": 8, "prompt_ms": prompt_ms, "predicted_n": n, "predicted_ms": ms}
    if who is None:
        return {"index": 0, "content": "x", "stop": False, "tokens_predicted": n, "timings": timings} | more
    return {"choices": [{"text": "x", "index": 0}], "object": "text_completion", "id": who, "timings": timings} | more


def sse(path: Path, *told: dict[str, Any] | str) -> Path:
    path.write_text("".join(f"data: {x if isinstance(x, str) else json.dumps(x)}\n\n" for x in told), encoding="utf-8")
    return path


def refused(path: Path) -> StallbookError:
    with pytest.raises(StallbookError) as caught:
        read(path)
    return caught.value


def test_a_streams_times_are_the_servers(tmp_path: Path) -> None:
    last = chunk(3, 9.25) | {"choices": [{"text": "", "index": 0, "finish_reason": "length"}]}
    seen = read(sse(tmp_path / "a", chunk(1, 0.001), chunk(3, 9.25), last, "[DONE]"))
    (one,) = seen.requests
    assert seen.served
    assert (one.name, one.start, one.prompt_tokens) == ("chatcmpl-a", None, 10)
    assert one.chunks == (Chunk(5001 * US, 1), Chunk(14250 * US, 2))


def test_streams_may_be_mixed_where_chunks_have_ids(tmp_path: Path) -> None:
    told = [chunk(1, 0, "a"), chunk(1, 0, "b"), chunk(2, 3, "b"), chunk(2, 4, "a")]
    seen = read(sse(tmp_path / "a", *told))
    found = [(one.name, [c.t // 1_000_000 for c in one.chunks]) for one in seen.requests]
    assert found == [("a", [5, 9]), ("b", [5, 8])]


def test_streams_without_ids_follow_each_other(tmp_path: Path) -> None:
    told = [chunk(1, 0, None), chunk(2, 3, None, stop=True), chunk(1, 0, None), chunk(1, 0, None, prompt_ms=6.0)]
    assert [len(one.chunks) for one in read(sse(tmp_path / "a", *told[:3])).requests] == [2, 1]
    again = [chunk(5, 0, None), chunk(1, 0, None)]  # it counts anew
    assert [len(one.chunks) for one in read(sse(tmp_path / "b", *again)).requests] == [1, 1]


def test_a_chunk_a_line_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(chunk(n, n)) + "\n" for n in (1, 2)))
    assert len(read(path).requests[0].chunks) == 2
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read(path).requests[0].chunks) == 2


def test_a_stream_that_failed_keeps_what_it_got(tmp_path: Path) -> None:
    error = {"error": {"code": 500, "message": "Context size has been exceeded."}}
    seen = read(sse(tmp_path / "a", chunk(1, 0), error, error))
    assert len(seen.requests) == 1
    assert seen.left_out["failed_client_requests"] == 2


def test_streams_without_timings_are_refused_with_what_to_send(tmp_path: Path) -> None:
    plain = chunk(1, 0)
    del plain["timings"]
    error = refused(sse(tmp_path / "a", plain, plain, "[DONE]"))
    assert error.slug == "client-format"
    assert '"timings_per_token": true' in error.remedy
    last = chunk(2, 5) | {"choices": [{"text": "", "index": 0}]}
    assert refused(sse(tmp_path / "b", plain, plain, last)).slug == "client-format"  # only the last has them


WRONG = {
    "falling": (chunk(2, 5), chunk(1, 0)),
    "late": (chunk(1, 5), chunk(2, 4)),
    "words": (chunk(1, 0, prompt_ms="5"),),  # type: ignore[arg-type]
    "nothing": (chunk(1, float("nan")),),
    "gone": (chunk(1, 0) | {"timings": {"prompt_ms": 1}},),
    "text": (chunk(1, 0), {"choices": [{"text": 5}], "object": "x", "id": "chatcmpl-a"}),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_contradicts_itself_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    error = refused(sse(tmp_path / "a", *WRONG[case]))
    assert error.slug == "bad-client"
    assert error.where == f"{tmp_path / 'a'}:{2 * len(WRONG[case]) - 1}"


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = sse(tmp_path / "a", chunk(1, 0), chunk(2, 5))
    path.write_bytes(path.read_bytes()[:-20])
    seen = read(path)
    assert len(seen.requests[0].chunks) == 1
    assert seen.left_out["torn_client_line"] == 1


@pytest.fixture(scope="module")
def run() -> Run:
    return sb.open(DATA / "four.log.gz")


def test_streams_become_the_deliveries_of_their_requests(run: Run) -> None:
    joined = join(run, DATA / "four.sse.gz")
    d = joined.deliveries
    assert d.boundary.tolist() == [0] * 192
    assert not joined.notes
    assert joined.facts["client"]["matched"] == 4
    for row in range(4):  # each near the log's own stamps: none was taken for another
        mine, own = d.t[d.request == row], run.deliveries.t[run.deliveries.request == row]
        assert np.abs(mine - own).max() < 100 * US


def test_the_order_of_streams_does_not_matter(run: Run, tmp_path: Path) -> None:
    lines = gzip.decompress((DATA / "four.sse.gz").read_bytes()).splitlines(keepends=True)
    size = len(lines) // 4
    parts = [b"".join(lines[i : i + size]) for i in range(0, len(lines), size)]
    random.Random(1).shuffle(parts)
    (tmp_path / "a").write_bytes(b"".join(parts))
    one, other = join(run, DATA / "four.sse.gz"), join(run, tmp_path / "a")
    assert np.array_equal(one.deliveries.t, other.deliveries.t)


def test_streams_of_another_run_fit_none(run: Run) -> None:
    with pytest.raises(StallbookError) as caught:
        join(run, DATA / "mixed.sse.gz")
    assert caught.value.slug == "no-match"


def test_the_commands_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, streams, out = str(DATA / "four.log.gz"), str(DATA / "four.sse.gz"), tmp_path / "a.stall"
    assert main(["convert", log, str(out), "--client", streams]) == 0
    assert main(["report", str(out), "--boundary", "frontend", "--brief"]) == 0
    assert main(["report", streams]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "four.sse.gz" in told
    assert "--client" in told
