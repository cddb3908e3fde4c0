"""docs/tutorial.md: its commands, one after the other, over shorter runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stallbook.cli import main

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    stallbook (.+)$", PAGE, re.MULTILINE)


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for library in ("tokenizers", "threadpoolctl", "vl_convert", "jinja2", "perfetto"):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    assert {line.split()[0] for line in COMMANDS} >= {"demo", "report", "convert", "gaps", "advise", "compare", "check"}
    for line in COMMANDS:
        words = shlex.split(line.replace("--seconds 30", "--seconds 1"))
        code = main(words)
        told = capfd.readouterr()
        # A limit may not hold on the machine of a test; that is an answer, too.
        assert code in ((0, 1) if words[0] == "check" else (0,)), (line, told.err)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "before.stall", "after.stall", "before.html", "before.perfetto-trace", "gaps.csv",
    }  # fmt: skip
