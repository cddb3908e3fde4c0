"""The suite that every adapter passes, on a real SGLang server, in each of its loops, with retractions forced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from sglang_server import COUNTERS, LARGE_POOL, LOOPS, MIXED, Layout, Server, load

import engine_load
from stallbook.conformance import PARTS, Answer, Ask, Counted, Limits, Script, conform

RETRACTING = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "20"}
"""Each twentieth decode SGLang retracts a request, as if its KV pool were full."""
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
        try:
            server.wait()
        except BaseException:
            server.reap()
            raise
        return Serving(server)


@dataclass(frozen=True)
class Serving:
    """A server, as the suite wants to see it."""

    server: Server

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
        return {name: found[role][0] for role, name in ROLES.items()}

    def said(self) -> str:
        """What it printed."""
        return self.server.output.read_text(errors="replace")

    def stop(self) -> None:
        """End it; where a part of it is gone, SGLang looks for the reason for a minute first."""
        whole = ROLES.keys() <= self.server.processes().keys()
        self.server.stop() if whole else self.server.reap()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("layout", LOOPS, ids=lambda layout: layout.name)
def test_it_conforms(layout: Layout, part: str, home: Path, tmp_path: Path) -> None:
    outcome = conform(SGLang(home, layout), tmp_path, only=[part], told=print)
    assert outcome.held, f"\n{outcome.table()}"


def test_prefill_and_decode_in_one_batch(home: Path, tmp_path: Path) -> None:
    outcome = conform(SGLang(home, MIXED), tmp_path, only=["serving"], told=print)
    assert outcome.held, f"\n{outcome.table()}"
