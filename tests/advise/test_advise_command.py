"""`stallbook advise`: its text in 80 columns, its JSON, its refusals."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from planted_advice import planted

from stallbook.advise import advise
from stallbook.cli import main
from stallbook.demo import Settings
from stallbook.report.advised import answer, document, dumps

BASE = asdict(Settings())
CAUSES = ("gc", "graph", "prefill", "tok", "preempt", "os", "slow", "residual", "sched", "other:lora")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    planted(tmp_path, "gc", config=BASE)
    return tmp_path / "log.jsonl"


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("engine", ["stallbook demo", "vllm 0.32.0", "sglang 0.5.23", "mine"])
def test_text_fits_80_columns_and_holds_nothing_that_a_terminal_would_obey(
    tmp_path: Path, cause: str, engine: str
) -> None:
    text = dumps([advise(planted(tmp_path, cause, engine, BASE | {"admit_watermark": "\x1b[2J"}))])
    other = dumps([advise(planted(tmp_path, cause, engine + "\u202e9"))])  # told beside the version of the table
    assert other.replace("\n", "").isprintable()
    assert max(map(len, text.splitlines())) <= 80 + len(str(tmp_path))  # the path is one word
    assert text.isprintable() or text.replace("\n", "").isprintable()
    assert "{" not in text


def test_a_long_name_is_folded(tmp_path: Path) -> None:
    text = dumps([advise(planted(tmp_path, f"other:{'n' * 200}", config=BASE))])
    assert "  other:nnn" in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80


def test_text_says_everything_of_a_cause(tmp_path: Path) -> None:
    text = " ".join(dumps([advise(planted(tmp_path, "gc", config=BASE | {"gc_freeze": True}))]).split())
    for words in (
        "91% of the tail's time is gc: set --compact-history (now off).",
        "fix keep what is made per token in flat arrays, not as objects: set --compact-history (now off)",
        "costs code: the engine changes",
        "ceiling p99 110 ms to 10.0 ms, p99.9 110 ms to 10.0 ms",
        "first order",
        "already move the start-up heap out of the collector's sight before serving: --gc-freeze, now on",
        "Recorded, and no time in the tail: ",
        "Settings as in stallbook demo --help.",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("engine", "known"),
    [("stallbook demo", True), ("vllm 0.32.0", True), ("sglang 0.5.23", False), ("mine", False)],
)
def test_where_a_fix_can_be_simulated_it_says_how(tmp_path: Path, engine: str, known: bool) -> None:
    told = [advise(planted(tmp_path, "gc", engine, BASE))]
    assert ("stallbook predict RUN --each." in dumps(told)) == known
    found = json.loads(dumps(told, "json"))["advice"][0]["predict"]
    assert found == ("stallbook predict RUN --each" if known else None)


def test_json_says_the_same(tmp_path: Path) -> None:
    told = advise(planted(tmp_path, "gc", config=BASE))
    (run,) = json.loads(dumps([told], "json"))["advice"]
    (cause,) = [c for c in run["causes"] if c["cause"] == "gc"]
    fix = cause["fixes"][0]
    assert run["answer"] == answer(told)
    assert fix["settings"][0] == {
        "flag": "--gc-freeze", "move": "set", "to": "", "present": False, "default": False, "in_log": True,
    }  # fmt: skip
    assert fix["state"] == "next"
    assert {cost["where"] for cost in fix["costs"]} == {"memory", "start-up"}
    assert cause["ceiling_ms"] == {"p99": pytest.approx(10), "p999": pytest.approx(10), "first_order": True}
    assert cause["evidence"]["for"][0]["figures"]["all_share"] == pytest.approx(1 / 3, abs=0.1)
    assert document([told])["stallbook"] == 1


def test_a_run_without_gaps_gets_no_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text('{"stallbook": 1, "engine": "x", "records": []}\n')
    assert main(["advise", str(path)]) == 0
    assert capsys.readouterr().out.startswith("No gaps.")
    assert main(["advise", str(path), "--brief"]) == 0


def test_command_writes_and_refuses(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "advice.json"
    words = ["advise", str(log), "--format", "json", "--out", str(out)]
    assert main(words) == 0
    assert json.loads(out.read_text())["advice"][0]["causes"][0]["cause"] == "gc"
    assert main(words) == 2
    assert "add --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    assert main(["advise", str(log), "--boundary", "client"]) == 2
    assert "has no deliveries at the client" in capsys.readouterr().err
    assert main(["advise", str(tmp_path / "none.jsonl")]) == 2


def test_many_runs_are_told_side_by_side(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(log), str(log), "--brief"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:]] == [["log.jsonl", "gc", "90.9%", "set", "--gc-freeze"]] * 2
    assert main(["advise", str(log), "--rules", "post"]) == 0
    assert "gc" in capsys.readouterr().out
