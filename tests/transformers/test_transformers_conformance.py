"""The suite that every adapter passes, on transformers in a program and as a server, with soft resets forced."""

from __future__ import annotations

from pathlib import Path

import pytest
from cb_engines import PROGRAM, SERVE, Engine

from stallbook.conformance import PARTS, conform


@pytest.mark.parametrize("part", PARTS)
def test_the_server_conforms(part: str, home: Path, tmp_path: Path) -> None:
    outcome = conform(SERVE, tmp_path, only=[part], told=print)
    assert outcome.held, f"\n{outcome.table()}"


@pytest.mark.parametrize("engine", [PROGRAM], ids=["program"])
def test_a_program_conforms(engine: Engine, home: Path, tmp_path: Path) -> None:
    """What hinders a recorder is the same in both."""
    outcome = conform(engine, tmp_path, only=["serving", "killed"], told=print)
    assert outcome.held, f"\n{outcome.table()}"
