"""What a real log's report says beside the attributed gaps: other boundaries, several tokens, first tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from golden_text import check

from stallbook.errors import StallbookError
from stallbook.log import open_run
from stallbook.report import RunReport, report

X16 = Path(__file__).parents[1] / "data" / "scenarios" / "X16.jsonl"
MS = 1_000_000


def drawn(folder: Path, tokens: int = 1, late: dict[int, float] | None = None, **how: Any) -> RunReport:
    """Two requests, 60 steps of 10 ms; each step emits `tokens`; the frontend has them 1 ms later, clients 1 more.

    late: ms that the tokens of a step spend on the way to the client beyond that.
    """
    told: list[dict[str, Any]] = [
        {"stallbook": 1, "engine": "planted", "baseline": {"fixed_ns": 10 * MS, "row_ns": 0, "kv_token_ns": 0}},
        *({"e": "arrive", "request": r, "t": 0} for r in "ab"),
        *({"e": "admit", "request": r, "t": 4 * MS} for r in "ab"),
    ]
    for i in range(60):
        t0, t1 = (i + 1) * 10 * MS, (i + 2) * 10 * MS
        step = {"e": "step", "id": i, "t0": t0, "t1": t1, "graph": "captured", "decode_tokens": 2}
        told += [step, {"e": "segment", "step": i, "name": "decode", "t0": t0, "t1": t1}]
        told.append({"e": "emit", "step": i, "t": t1, "tokens": {"a": tokens, "b": tokens}})
        for r in "ab":
            for after, where in ((MS, "frontend"), (2 * MS + round((late or {}).get(i, 0) * MS), "client")):
                told.append({"e": "deliver", "request": r, "t": t1 + after, "tokens": tokens, "boundary": where})
    path = folder / "planted.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in told))
    return report(open_run(path), **how)


def test_gaps_at_each_boundary(tmp_path: Path) -> None:
    told = drawn(tmp_path, late={30: 8.5, 31: 0.5}).as_dict()
    assert told["run"]["boundary"] == "engine"
    assert told["itl_ms"]["max"] == 10
    frontend, client = told["boundaries"]["frontend"], told["boundaries"]["client"]
    assert (frontend["gaps"], frontend["itl_ms"]["max"], frontend["unmatched"]) == (118, 10, 0)
    assert frontend["share"] == pytest.approx({"fwd": 0.9, "frontend": 0.1})
    assert (client["itl_ms"]["max"], client["tail"]["gaps"]) == (18.5, 2)
    # What comes from 330.5 to 332.5 was emitted at 330: it, too, is no gap of the engine.
    # From 312 to 330.5: the engine emits at 320, the frontend has it at 321.
    assert client["tail"]["share"] == pytest.approx({"fwd": 8 / 18.5, "frontend": 1 / 18.5, "network": 9.5 / 18.5})
    assert client["after_emission"] == {"gaps": 4, "tail_gaps": 2, "longest_ms": 10.5}
    assert client["reconcile"] == {"max_error_ns": 0, "negative_parts": 0}


def test_no_engine_gap_is_said(tmp_path: Path) -> None:
    text = str(drawn(tmp_path, late={30: 8.5, 31: 0.5}))
    assert "No engine gap in 2 of the 2 longest: the token waited after emission." in text
    assert "The longest wait after emission: 10.5 ms." in text
    assert "each of 118 gaps and 2 first tokens and 118 frontend gaps and 118 client" in " ".join(text.split())


def test_a_report_on_the_clients_gaps(tmp_path: Path) -> None:
    told = drawn(tmp_path, late={30: 8.5, 31: 0.5}, boundary="client").as_dict()
    assert (told["run"]["boundary"], told["itl_ms"]["max"], told["gaps"]) == ("client", 18.5, 118)
    assert told["tail"]["count"]["network"] == 2
    assert set(told["boundaries"]) == {"engine", "frontend"}
    assert told["boundaries"]["engine"]["after_emission"] is None
    assert told["boundaries"]["engine"]["share"] == {
        "fwd": 1.0, "prefill": 0.0, "graph": 0.0, "tok": 0.0, "residual": 0.0, "preempt": None, "gc": None,
    }  # fmt: skip  # the log records neither evictions nor collections
    assert told["stalls"]["worst"][0]["parts_ms"] == {"fwd": 8, "frontend": 1, "network": 9.5}
    assert told["stalls"]["worst"][0]["streams"] == 2


def test_first_tokens(tmp_path: Path) -> None:
    told = drawn(tmp_path).as_dict()["ttft"]
    assert told["share"] == pytest.approx({"queue": 0.2, "residual": 0.3, "fwd": 0.5})
    assert (told["waits"], told["mean_ms"]) == (2, {"queue": 4, "residual": 6, "fwd": 10})
    assert (told["tail"]["threshold_ms"], told["tail"]["waits"], told["never_admitted"]) == (20, 2, 0)
    assert told["tail"]["count"] == {"queue": 0, "residual": 0, "fwd": 0, "clean": 2}
    assert drawn(tmp_path, rules="post").as_dict()["ttft"] is None


def test_several_tokens_have_three_series(tmp_path: Path) -> None:
    drew = drawn(tmp_path, tokens=4)
    told = drew.as_dict()["itl_series"]
    assert (told["attributed"], told["several"]) == ("per emission", 118)
    assert (told["zero_filled_ms"]["p50"], told["zero_filled_ms"]["p99"]) == (0, 10)
    assert (told["divided_ms"]["p50"], told["divided_ms"]["max"]) == (2.5, 2.5)
    assert drew.as_dict()["itl_ms"]["p50"] == 10
    assert "zero-filled, ms  p50 0 " in str(drew)
    assert "several tokens at once, not speed" in str(drew)
    assert "zero-filled" not in str(drawn(tmp_path))


@pytest.mark.parametrize(
    ("how", "remedy"), [({"rules": "post", "boundary": "client"}, "--rules"), ({"boundary": "frontend"}, "client")]
)
def test_a_boundary_that_is_not_known(how: dict[str, Any], remedy: str) -> None:
    with pytest.raises(StallbookError, match=remedy) as refused:
        report(open_run(X16), **how)
    assert refused.value.slug == "no-boundary"


@pytest.mark.parametrize("boundary", ["engine", "client"])
def test_an_empty_chunk_is_left_out(boundary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(X16.parent)
    text = str(report(open_run(Path(X16.name)), boundary=boundary))
    assert max(map(len, text.splitlines())) <= 80
    check(f"x16-{boundary}.txt", text)
