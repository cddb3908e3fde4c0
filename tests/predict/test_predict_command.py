"""`stallbook predict` from its arguments to what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from predict_logs import planted

import stallbook as sb
from stallbook.cli import main

FEW = ["--replicas", "2"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("predict") / "planted.jsonl.gz"
    sb.write(planted(seconds=8.0), path)
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert main(["predict", *args]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_a_change_is_told_in_80_columns_with_its_misfit_first(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(capsys, log, "--set", "token_budget=256", "--set", "admit_watermark=0.1", *FEW)
    lines = told.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("token_budget=256, admit_watermark=0.1: itl.p99.9 from ")
    for word in ("80% interval", "ceiling", "recorded", "own run", "replayed", "Assumes", "captured", "collections"):
        assert word in told
    assert told.index("own run") < told.index("80% interval")


def test_the_same_as_json(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, log, "--set", "token_budget=256", "--format", "json", *FEW))["predict"]
    (one,) = told["predictions"]
    assert one["set"] == {"token_budget": 256}
    figure = one["figures"]["itl.p99"]
    assert figure["low"] <= figure["value"] <= figure["high"]
    assert set(told["misfit"]) >= {"itl.p50", "itl.p99.9", "ttft.p50"}
    assert told["refusal"] is None
    assert told["fit"]["captured"]["seen"] > 100


@pytest.mark.slow
def test_every_fix_and_the_best_order(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(capsys, log, "--each", *FEW)
    assert max(map(len, told.splitlines())) <= 80
    assert told.startswith("The best single fix is ")
    for name in ("token_budget=256", "gc_freeze=on", "kv_blocks=1400", "Best order by itl.p99.9"):
        assert name in told


@pytest.mark.slow
def test_a_search_prints_its_front(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(capsys, log, "--find", "itl.p99.9 < 10s", "--trade", "ttft", "--settings", "12", *FEW)
    assert max(map(len, told.splitlines())) <= 80
    assert "The front" in told
    assert told.startswith("As recorded it gives itl.p99.9 < 10000 ms already, ")
    assert re.search(r" of 1\d settings", " ".join(told.split()))
    found = json.loads(printed(capsys, log, "--find", "itl.p99.9 < 10s", "--settings", "12", "--format", "json", *FEW))[
        "predict"
    ]["search"]
    assert len(found["settings"]) >= 12
    assert found["best"] is not None


@pytest.mark.slow
def test_the_front_is_drawn(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    for form, head in (("html", b"<!doctype html>"), ("png", b"\x89PNG")):
        out = tmp_path / f"front.{form}"
        args = ("--find", "itl.p99 < 1s", "--settings", "8", "--format", form, "--out", str(out))
        printed(capsys, log, *args, *FEW)
        assert out.read_bytes().startswith(head)
        assert "is there already" in printed(capsys, log, *args, *FEW, code=2)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "nothing is asked"), (["--each", "--set", "gc_freeze=on"], "stands alone"),
        (["--set", "budget=3"], "no setting that predict can turn"), (["--set", "token_budget=3"], "token_budget"),
        (["--find", "fast"], "is no goal"), (["--find", "itl.p99 < 5ms", "--trade", "x"], "is no figure"),
        (["--set", "gc_freeze=on", "--format", "png"], "draws the front"),
        (["--set", "gc_freeze=on", "--replicas", "1"], "too few"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said_in_a_line(
    log: str, args: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = printed(capsys, log, *args, code=2)
    assert told in line
    assert line.count("\n") == 1


def test_a_wrong_setting_is_told_before_anything_is_fitted(
    log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallbook.predict.model.model_of", lambda run: pytest.fail("fitted"))
    for wrong in ("budget=3", "token_budget=3", "token_budget=many"):
        assert "token_budget" in printed(capsys, log, "--set", wrong, code=2)


def test_a_log_of_another_engine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"stallbook": 1, "engine": "other 1", "records": []}\n')
    assert "needs a log of" in printed(capsys, str(path), "--each", code=2)
