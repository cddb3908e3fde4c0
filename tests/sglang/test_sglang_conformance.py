"""The suite that every adapter passes, on a real SGLang server, in each of its loops, with retractions forced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sglang_server import COUNTERS, LARGE_POOL, LOOPS, MIXED, RETRACTING, Layout, Server, load

from engine_conforms import Serving, waited
from stallbook.conformance import PARTS, Limits, Script, conform

ROLES = {"engine": "engine", "api": "api:0", "detokenizer": "detokenizer:0"}


@dataclass(frozen=True)
class SGLang:
    """The engine under test."""

    home: Path
    layout: Layout
    script: Script = field(default_factory=Script)
    limits: Limits = field(default_factory=Limits)

    @property
    def name(self) -> str:
        """As a report is to call it."""
        return f"SGLang, {self.layout.name} loop"

    def start(self, folder: Path, log: Path | None, environment: Mapping[str, str]) -> Serving:
        """A server that serves."""
        output = folder / "server.txt"
        server = Server(
            self.home, output, self.layout, log, pool=LARGE_POOL, environment=RETRACTING | dict(environment)
        )  # fmt: skip
        return Serving(waited(server), ROLES, load, COUNTERS[:2])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("layout", LOOPS, ids=lambda layout: layout.name)
def test_it_conforms(layout: Layout, part: str, home: Path, tmp_path: Path) -> None:
    outcome = conform(SGLang(home, layout), tmp_path, only=[part], told=print)
    assert outcome.held, f"\n{outcome.table()}"


def test_prefill_and_decode_in_one_batch(home: Path, tmp_path: Path) -> None:
    outcome = conform(SGLang(home, MIXED), tmp_path, only=["serving"], told=print)
    assert outcome.held, f"\n{outcome.table()}"
