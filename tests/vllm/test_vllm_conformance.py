"""The suite that every adapter passes, on a real vLLM server, in both layouts, with a pool small enough to preempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from vllm_load import load
from vllm_server import COUNTERS, LAYOUTS, SMALL_POOL, THREE, Layout, Server

import engine_load
from stallbook.conformance import PARTS, Answer, Ask, Counted, Limits, Script, conform


@dataclass(frozen=True)
class VLLM:
    """The engine under test. limits: docs/vllm.md says what was measured of the cost."""

    home: Path
    layout: Layout
    script: Script = field(default_factory=lambda: Script(prompts=(100, 900), answers=(48, 160)))
    limits: Limits = field(default_factory=lambda: Limits(residual=0.03, tail=0.1, cost=0.01))

    @property
    def name(self) -> str:
        """As a report is to call it."""
        return f"vLLM, layout {self.layout.name}"

    def start(self, folder: Path, log: Path | None, environment: Mapping[str, str]) -> Serving:
        """A server that serves."""
        output = folder / "server.txt"
        server = Server(self.home, output, self.layout, log, blocks=SMALL_POOL, environment=environment)
        try:
            server.wait()
        except BaseException:
            server.reap()
            raise
        roles = {"api": "api:0", "engine": "engine"} | ({"worker": "worker:0"} if self.layout is THREE else {})
        return Serving(server, roles)


@dataclass(frozen=True)
class Serving:
    """A server, as the suite wants to see it."""

    server: Server
    roles: Mapping[str, str]

    def load(self, asks: Sequence[Ask], at_once: int) -> list[Answer]:
        """Stream all of them."""
        prompts = [engine_load.ids(Random(one.seed), one.prompt_tokens) for one in asks]
        wanted = [engine_load.Ask(a.name, ids, a.max_tokens) for a, ids in zip(asks, prompts, strict=True)]
        return [Answer(one.name, one.tokens, one.error) for one in load(self.server.url, wanted, at_once)]

    def counted(self) -> Counted:
        """As /metrics has them."""
        told = self.server.counters()
        return Counted(tokens=told[COUNTERS[1]], preemptions=told[COUNTERS[0]])

    def pids(self) -> dict[str, int]:
        """The processes that record."""
        found = self.server.processes()
        return {name: found[role][0] for role, name in self.roles.items()}

    def said(self) -> str:
        """What it printed."""
        return self.server.output.read_text(errors="replace")

    def stop(self) -> None:
        """End it."""
        self.server.stop() if self.server.process.poll() is None else self.server.reap()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_it_conforms(layout: Layout, part: str, home: Path, tmp_path: Path) -> None:
    outcome = conform(VLLM(home, layout), tmp_path, only=[part], told=print)
    assert outcome.held, f"\n{outcome.table()}"
