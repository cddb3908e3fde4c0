"""A real engine's server, as the conformance suite wants to see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import engine_load
from engine_server import Server
from stallbook.conformance import Answer, Ask, Counted

__all__ = ["Serving", "waited"]

Load = Callable[[str, Sequence[engine_load.Ask], int], Sequence[engine_load.Answer]]


def waited(server: Server) -> Server:
    """A server that serves; none is left where it does not."""
    try:
        server.wait()
    except BaseException:
        server.reap()
        raise
    return server


@dataclass(frozen=True)
class Serving:
    """roles: what the log calls the processes of each role. send: streams requests. counts: the names of the engine's
    own counts of preemptions and of tokens."""

    server: Any
    roles: Mapping[str, str]
    send: Load
    counts: tuple[str, str]

    def load(self, asks: Sequence[Ask], at_once: int) -> list[Answer]:
        """Stream all of them."""
        prompts = [engine_load.ids(Random(one.seed), one.prompt_tokens) for one in asks]
        wanted = [engine_load.Ask(a.name, ids, a.max_tokens) for a, ids in zip(asks, prompts, strict=True)]
        return [Answer(one.name, one.tokens, one.error) for one in self.send(self.server.url, wanted, at_once)]

    def counted(self) -> Counted:
        """As /metrics has them."""
        told = self.server.counters()
        preemptions, tokens = self.counts
        return Counted(tokens=told[tokens], preemptions=told[preemptions])

    def pids(self) -> dict[str, int]:
        """The processes that record."""
        found = self.server.processes()
        return {name: found[role][0] for role, name in self.roles.items()}

    def said(self) -> str:
        """What it printed."""
        return str(self.server.output.read_text(errors="replace"))

    def stop(self) -> None:
        """End it. Where a part of it is gone it may look for the reason for a minute first: that is not waited for."""
        whole = self.roles.keys() <= self.server.processes().keys()
        self.server.stop() if whole else self.server.reap()
