"""What docs/llama.md shows of the recorded logs is what they give. STALLBOOK_UPDATE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import stallbook as sb
from stallbook.cli import main
from stallbook.client import join

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "llama.md"
DATA = Path("tests/data/llama")


def block(name: str, made: str) -> None:
    """The page holds this between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    marks = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    if os.environ.get("STALLBOOK_UPDATE_GOLDEN"):
        text = re.sub(f"{marks[0]}.*?{marks[1]}", lambda _: marks[0] + made + marks[1], text, flags=re.DOTALL)
        PAGE.write_text(text, encoding="utf-8")
    assert marks[0] + made + marks[1] in text


def off(name: str) -> list[str]:
    """A row: how far the log's stamps and gaps are from the server's own."""
    run = sb.open(DATA / f"{name}.log.gz")
    served = join(run, DATA / f"{name}.sse.gz")
    told = served.facts["client"]["log_after_server_ns"]
    gaps = []
    for row in range(len(run.requests.names)):
        ours, theirs = (one.deliveries.t[one.deliveries.request == row] for one in (run, served))
        gaps += np.abs(np.diff(ours) - np.diff(theirs)).tolist()
    tokens = int(run.emissions.tokens.sum())
    micro = [told["median"], told["most"], int(np.median(gaps)), max(gaps)]
    return [f"`{name}`", f"{tokens}", *(f"{ns // 1000} us" for ns in micro)]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")


def test_the_timings() -> None:
    head = ["log", "tokens", "message after the token, median", "most", "gap off by, median", "most"]
    rows = [head, *(off(name) for name in ("four", "mixed", "full"))]
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    told = "    stallbook convert tests/data/llama/four.log.gz four.jsonl --client tests/data/llama/four.sse.gz\n\n"
    block("timings", told + "".join([lines[0], "|---" * len(head) + "|\n", *lines[1:]]))


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(DATA / "mixed.log.gz")
    assert main(["report", log]) == 0
    told = capsys.readouterr().out.partition("\nWhat the run did")[0]
    block("example", f"    stallbook report {log}\n\n```\n{told}\n...\n```\n")
