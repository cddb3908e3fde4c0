"""The suite that every adapter passes, on a real vLLM server, in both layouts, with a pool small enough to preempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from vllm_load import load
from vllm_server import COUNTERS, LAYOUTS, SMALL_POOL, THREE, Layout, Server

from engine_conforms import Serving, waited
from stallbook.conformance import PARTS, Limits, Script, conform

ROLES = {"api": "api:0", "engine": "engine"}


@dataclass(frozen=True)
class VLLM:
    """The engine under test. limits: docs/vllm.md says what was measured of the cost."""

    home: Path
    layout: Layout
    script: Script = field(default_factory=lambda: Script(prompts=(100, 900), answers=(48, 160)))
    limits: Limits = field(default_factory=lambda: Limits(residual=0.03, tail=0.1))

    @property
    def name(self) -> str:
        """As a report is to call it."""
        return f"vLLM, layout {self.layout.name}"

    def start(self, folder: Path, log: Path | None, environment: Mapping[str, str]) -> Serving:
        """A server that serves."""
        output = folder / "server.txt"
        server = Server(self.home, output, self.layout, log, blocks=SMALL_POOL, environment=environment)
        roles = ROLES | ({"worker": "worker:0"} if self.layout is THREE else {})
        return Serving(waited(server), roles, load, COUNTERS[:2])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_it_conforms(layout: Layout, part: str, home: Path, tmp_path: Path) -> None:
    outcome = conform(VLLM(home, layout), tmp_path, only=[part], told=print)
    assert outcome.held, f"\n{outcome.table()}"
