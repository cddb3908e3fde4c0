"""`--client` on the command line: one meaning for each command that has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from client_files import UUID, engine, simple, write

from stallbook.cli import main
from stallbook.log import open_run

CHUNKS = [(12, 1), (22, 1), (36, 2), (52, 1)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    engine(tmp_path)
    return str(tmp_path / "engine.jsonl"), str(write(tmp_path / "c.jsonl", simple(UUID, *CHUNKS), simple("x", (1, 1))))


def test_report_tells_of_the_client(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    log, client = files
    assert main(["report", log, "--client", client]) == 0
    told = capsys.readouterr().out
    assert "Gaps at the client" in told
    assert "simple form: 1 of its 2 requests joined, 4 chunks" in " ".join(told.split())
    for words in ("client requests without match: 1", "requests without client: 1", "chunks of several tokens: 1"):
        assert words in " ".join(told.split())
    assert main(["report", log, "--client", client, "--boundary", "client", "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["run"]["boundary"] == "client"


def test_convert_keeps_the_deliveries(files: tuple[str, str], tmp_path: Path) -> None:
    log, client = files
    for name in ("joined.jsonl", "joined.stall"):
        assert main(["convert", log, str(tmp_path / name), "--client", client]) == 0
        deliveries = open_run(tmp_path / name).deliveries
        assert int((deliveries.boundary == 1).sum()) == len(CHUNKS)


def test_one_client_has_one_run(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    log, client = files
    assert main(["report", log, log, "--client", client]) == 2
    assert capsys.readouterr().err == "stallbook: --client belongs to one run; report each run by itself\n"


def test_a_bad_client_is_one_line(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps({"benchmarks": []}, indent=1))
    assert main(["report", files[0], "--client", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "guidellm" in told
