"""`compare` and `check` end to end: how sides are named, what is written, how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pipeline_logs import serve

import stallbook as sb
from stallbook.cli import main
from stallbook.report import compared


@pytest.fixture
def sides(tmp_path: Path) -> tuple[list[str], list[str]]:
    told = [serve(tmp_path / name, slow, suffix=".jsonl") for name, slow in (("a", 40), ("b", 20))]
    return [str(p) for p in told[0]], [str(p) for p in told[1]]


def told_error(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line


def test_against_takes_every_name_up_to_the_next_option(
    sides: tuple[list[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sides
    ways = (
        [*a, "--against", *b, "--format", "json"],
        ["--against", *b, "--format", "json", *a],
        [*a, f"--against={b[0]}", *b[1:], "--format", "json"],
        ["--format", "json", *[x for run in b for x in ("--against", run)], "--rules", "full", *a],
        ["--format", "json", "--against", *b, "--", *a],
    )
    documents = []
    for args in ways:
        assert main(["compare", *args]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert all(d == documents[0] for d in documents)
    told = documents[0]["compare"]
    assert [r["path"] for r in told["a"]["runs"]] == a
    assert [r["path"] for r in told["b"]["runs"]] == b
    assert told["paired"] is True
    p99 = told["figures"]["itl.p99"]
    assert (p99["answer"], p99["measured"]["up"], p99["change_is"]) == ("established", 5, "ratio")
    assert told["figures"]["gap.prefill"]["answer"] == "established"
    assert told["figures"]["tail.sample"]["answer"] == "not recorded"


def test_markdown_says_the_same(sides: tuple[list[str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    a, b = sides
    told = []
    for form in ("text", "markdown"):
        assert main(["compare", *a, "--against", *b, "--format", form]) == 0
        told.append(capsys.readouterr().out)
    text, marked = told
    first, *others = marked.splitlines()
    assert first == "### stallbook: Established: p90 +37%, p99 +67%, p99.9 +67%, worst +67%, tokens/s -14%."
    tables = [line for line in others if line.startswith("|")]
    assert "|  | B | A | change | p | answer |" in tables
    assert "|---|---:|---:|---:|---:|---|" in tables
    rows = {" ".join(line.strip("| ").split()) for line in marked.replace(" | ", " ").splitlines()}
    grid = [line for line in text.splitlines() if line.endswith(("established", "suggestive", "not resolved"))]
    assert len(grid) > 10
    assert {" ".join(line.split()).replace("<", "&lt;") for line in grid} <= rows
    assert marked.count("<details>") == marked.count("</details>") == 1
    assert "- paired: by seed: 1, 2, 3, 4, 5" in others


def test_names_are_not_read_as_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "<img src=x>|`x"
    a, b = (serve(tmp_path / side, slow, engine=name) for side, slow in (("a", 40), ("b", 20)))
    assert main(["compare", *map(str, a), "--against", *map(str, b), "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert "<img" not in out
    assert "&lt;img src=x&gt;\\|" in out


def test_compare_prints_the_answer_first(
    sides: tuple[list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sides
    assert main(["compare", *a, "--against", *b]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Established: p90 +37%, p99 +67%, p99.9 +67%, worst +67%, tokens/s -14%.")
    assert err == ""
    place = tmp_path / "told.txt"
    assert main(["compare", *a, "--against", *b, "--out", str(place)]) == 0
    assert place.read_text(encoding="utf-8") == out
    assert main(["compare", *a, "--against", *b, "--out", str(place)]) == 2
    assert "--force" in capsys.readouterr().err
    c = sb.compare([sb.open(p) for p in a], [sb.open(p) for p in b])
    assert compared.dumps(c) == out


def test_compare_without_pairs_and_under_the_rules_of_the_post(
    sides: tuple[list[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sides
    assert main(["compare", *a, "--against", *b, "--unpaired", "--rules", "post"]) == 0
    out = capsys.readouterr().out
    assert "paired  no:" in out
    assert "rules post" in out
    assert "A first token's wait" not in out


@pytest.mark.parametrize(
    ("head", "key"), [({"engine": "made 2"}, "engine"), ({"records": ["segments", "graph"]}, "abilities")]
)
def test_runs_that_are_not_alike_are_refused(
    head: dict[str, object], key: str, sides: tuple[list[str], list[str]], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    other = [str(p) for p in serve(tmp_path / "other", 20, suffix=".jsonl", **head)]
    for command in (["compare"], ["check", "--max", "itl.p99=1s"]):
        assert main([*command, *sides[0], "--against", *other]) == 2
        assert f"not alike in {key}: " in (line := told_error(capsys))
        assert line.endswith(f"--allow {key}")
        assert main([*command, *sides[0], "--against", *other, "--allow", key]) in (0, 1)
        capsys.readouterr()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["compare", "A"], "Missing option '--against'"),
        (["compare", "A", "--against"], "requires an argument"),
        (["compare", "A", "--against", "A"], "is named twice"),
        (["compare", "A", "--against", "B", "--allow", "wether"], "nothing is called 'wether'"),
        (["compare", "A", "--against", "missing.stall"], "missing.stall"),
        (["check", "A"], "nothing is asked of the runs"),
        (["check", "A", "--max", "itl.p99=50"], "write it as in itl.p99=50ms"),
        (["check", "A", "--max", "tail.preemt=5%"], "did you mean tail.preempt"),
        (["check", "A", "--max", "tail.queue=5%"], "see first.queue"),
        (["check", "A", "--max-regression", "5%"], "name them with --against"),
        (["check", "A", "--max", "itl.p99=1s", "--boundary", "client"], "has no deliveries at the client"),
    ],
)
def test_what_cannot_be_asked_ends_with_one_line(
    args: list[str], told: str, sides: tuple[list[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"A": sides[0][0], "B": sides[1][0]}
    assert main([names.get(arg, arg) for arg in args]) == 2
    assert told in told_error(capsys)


def test_check_writes_each_form_and_ends_by_what_it_found(
    sides: tuple[list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sides
    for form in ("text", "json", "junit", "markdown"):
        assert main(["check", *b, "--max", "itl.p99=40ms", "--format", form]) == 0
        good = capsys.readouterr().out
        assert main(["check", *a, "--max", "itl.p99=40ms", "--format", form]) == 1
        assert capsys.readouterr().out != good
    place, summary = tmp_path / "check.json", tmp_path / "summary.md"
    args = ["check", *a, "--max", "itl.p99=40ms", "--format", "json", "--out", str(place), "--summary", str(summary)]
    assert main(args) == 1
    assert capsys.readouterr().out.startswith("FAILED: 1 of 1 check of 5 runs: itl.p99.")
    assert json.loads(place.read_text())["check"]["passed"] is False
    assert main([*args, "--force"]) == 1
    assert summary.read_text().count("### stallbook: FAILED") == 2


def test_runs_without_a_gap_have_no_answer_and_pass_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = []
    for name in ("one", "two", "three", "four"):
        path = tmp_path / f"{name}.jsonl"
        path.write_text('{"stallbook": 1, "engine": "e", "records": ["gc"]}\n')
        empty.append(str(path))
    assert main(["compare", *empty[:2], "--against", *empty[2:]]) == 0
    assert capsys.readouterr().out.startswith("Not resolved: ")
    assert main(["compare", *empty[:2], "--against", *empty[2:], "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["compare"]["figures"]["itl.p99"]["a"] is None
    assert main(["check", empty[0], "--max", "itl.p99=1s", "--max", "tail.gc=50%", "--against", empty[2]]) == 1
    assert capsys.readouterr().out.startswith("FAILED: 6 of 6 checks of 1 run")
