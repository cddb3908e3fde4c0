"""What the suite asks of an engine under test: to be started with a log or without, given work, counted and ended.

Whoever writes an adapter writes an `Engine` for it, some thirty lines: docs/adapters.md has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

__all__ = ["Answer", "Ask", "Counted", "Engine", "Limits", "Script", "Server"]


@dataclass(frozen=True)
class Ask:
    """One request: a prompt of so many tokens, drawn with `seed`, and an answer of exactly so many."""

    name: str
    prompt_tokens: int
    max_tokens: int
    seed: int = 0


@dataclass(frozen=True)
class Answer:
    """What the one who asked got: so many tokens. `error` is empty where all went well."""

    name: str
    tokens: int
    error: str = ""


@dataclass(frozen=True)
class Counted:
    """The engine's own counts since it started, taken from nothing that the adapter touches. None: it keeps none."""

    tokens: int | None = None
    preemptions: int | None = None


@dataclass(frozen=True)
class Script:
    """A load whose every run is the same: sizes drawn with `seed` between the least and the most."""

    requests: int = 60
    prompts: tuple[int, int] = (16, 200)
    answers: tuple[int, int] = (24, 96)
    at_once: int = 16
    seed: int = 1

    def asks(self) -> list[Ask]:
        """The requests, in the order in which they are sent."""
        rng = Random(self.seed)
        return [
            Ask(f"c{self.seed}-{i}", rng.randint(*self.prompts), rng.randint(*self.answers), rng.randrange(2**31))
            for i in range(self.requests)
        ]


@dataclass(frozen=True)
class Limits:
    """What is allowed: unexplained time of all gaps and of the tail's, and the recorder's own account of its cost.

    cost is a share of the time in steps. cost_ns, of each step, is always allowed: recording costs about as much in a
    step of 2 ms, as a tiny model has them, as in one of 10 ms and more.
    """

    residual: float = 0.05
    tail: float = 0.12
    cost: float = 0.005
    cost_ns: int = 50_000


class Server(Protocol):
    """An engine that runs and takes requests."""

    def load(self, asks: Sequence[Ask], at_once: int) -> Sequence[Answer]:
        """Send all of them, at most so many at a time, and wait for their answers.

        An engine that is killed meanwhile is no error of the caller's: what it did not answer has an `error`.
        """

    def counted(self) -> Counted:
        """Its own counts. Asked once no request is left."""

    def pids(self) -> Mapping[str, int]:
        """Its processes that record, by role (`engine`, `worker:0`, `api:0`). Each is killed once."""

    def said(self) -> str:
        """What it printed so far, on stdout and stderr."""

    def stop(self) -> None:
        """End it as its user would, and make sure that nothing of it is left. Also after it was killed."""


class Engine(Protocol):
    """An engine under test.

    script: a load under which it has to preempt, as `start` sets it up. limits: what is allowed of it.
    """

    name: str
    script: Script
    limits: Limits

    def start(self, folder: Path, log: Path | None, environment: Mapping[str, str]) -> Server:
        """Start it and wait until it serves; `folder` is there for its files.

        It records to `log`, as its user would have it record; None: without the adapter. `environment` is to be added
        to that of its processes.
        """
