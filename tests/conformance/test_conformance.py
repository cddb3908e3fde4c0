"""A toy engine with an adapter of eighty lines passes the suite; and the suite finds what an adapter gets wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "adapters.md"
sys.path.insert(0, str(HERE))

import toy_harness  # noqa: E402

from stallbook.conformance import Limits, Script, conform  # noqa: E402

SHORT = Script(requests=24, prompts=(8, 60), answers=(16, 40), at_once=8)
ANY = Limits(residual=0.5, tail=1.0, cost=0.1)
"""What a test may take of a machine that does other things too."""


class Toy(toy_harness.Toy):
    """With a shorter script."""

    script, limits = SHORT, ANY


@pytest.mark.slow
def test_the_toy_passes(tmp_path: Path) -> None:
    outcome = conform(Toy(), tmp_path)
    print(outcome.table())
    assert not outcome.failed
    assert len(outcome.findings) == 21
    assert {one.part for one in outcome.findings} == {"serving", "killed", "hindered"}
    assert outcome.held
    shown = re.findall(r"^  holds +(.+?)  ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown == [one.name for one in outcome.findings], "the page shows another suite"


WRONG: Mapping[str, tuple[str, str, str]] = {
    "an eviction is missed": ('("preempt", self.evicts, None), ', "", "preemptions"),
    "a token is missed": ("if request.name not in self.running:", "if len(self.running) < 3:", "tokens"),
    "segments are missed": ("self.rec.enter(self.decode)", "self.rec.leave()", "residual of all gaps"),
    "a hook does not exist": ('("forward", None, self.emits)', '("forwards", None, self.emits)', "tokens"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, check = WRONG[what]
    text = (HERE / "toy_adapter.py").read_text()
    assert text.count(before) == 1
    (tmp_path / "toy_adapter.py").write_text(text.replace(before, after))
    (tmp_path / "toy_engine.py").write_text((HERE / "toy_engine.py").read_text())
    monkeypatch.setattr(toy_harness, "HERE", tmp_path)
    outcome = conform(Toy(), tmp_path / "out", only=["serving"])
    assert check in [one.name for one in outcome.failed], outcome.table()
    assert not outcome.held


def test_the_command_says_what_fails(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from stallbook.conformance import Limits, Script\n\n\n"
        "class Broken:\n"
        '    name, script, limits = "broken 1", Script(), Limits()\n\n'
        "    def start(self, folder, log, environment):\n"
        '        raise RuntimeError("it does not start")\n\n\n'
        "ENGINE = Broken()\n"
    )
    command = [sys.executable, "-m", "stallbook.conformance", "broken:ENGINE", "--only", "serving"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAILS" in done.stdout
    assert "RuntimeError: it does not start" in done.stdout
    assert "0 hold, 1 fail, 0 not tried" in done.stdout
