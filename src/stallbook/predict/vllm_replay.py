"""The replay of a vLLM log: who came in at which step, who gave up, and whether its scheduler plans what it did.

The engine core takes requests in between two steps, and the log has when it did: the end of the hold `handoff`, or the
arrival where no frontend recorded. So a request is there at the first step that ends later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from stallbook.demo.scheduler import Plan, Sequence
from stallbook.predict.replay import Replay, Replayed, replay
from stallbook.predict.vllm import VllmPolicy, VllmSettings
from stallbook.run import UNKNOWN, Ints, Run

__all__ = ["HANDOFF", "core_arrivals", "gave_up", "made_of", "outputs_of", "replay_vllm"]

HANDOFF: Final = "handoff"


def core_arrivals(run: Run) -> Ints:
    """When the engine core took each request in."""
    t = run.requests.arrive.copy()
    if HANDOFF in run.names:
        own = run.holds.kind == run.names.index(HANDOFF)
        np.maximum.at(t, run.holds.request[own], run.holds.t1[own])
    return t


def gave_up(run: Run) -> dict[int, list[int]]:
    """By step: who had been given up when it was planned, with tokens left to make. A text that ends is none of them.

    Whoever made its last token is out of the next step; so one that left later was given up, and if it was in the
    last step before that, that step gave it nothing.
    """
    r, e = run.requests, run.emissions
    made, last = made_of(run), np.full(len(r.names), -1)
    np.maximum.at(last, e.request, e.step)
    left: dict[int, list[int]] = {}
    for key in np.flatnonzero((r.finish != UNKNOWN) & (made < r.max_tokens)).tolist():
        row = int(np.searchsorted(run.steps.t1, r.finish[key], side="right"))
        if row > last[key] + 1 and row < len(run.steps.id):
            left.setdefault(row, []).append(key)
    return left


def outputs_of(run: Run) -> list[int]:
    """How many tokens each request makes: what it made, if it came to an end; else what it was told to make."""
    r, made = run.requests, made_of(run)
    given_up = np.zeros(len(r.names), np.bool_)
    given_up[[key for keys in gave_up(run).values() for key in keys]] = True
    ended = (r.finish != UNKNOWN) & ~given_up & (made > 0)
    outputs: list[int] = np.where(ended | (r.max_tokens < 1), np.maximum(made, 1), r.max_tokens).tolist()
    return outputs


def replay_vllm(run: Run, settings: VllmSettings, into: Replay | None = None) -> Iterator[Replayed]:
    """As `stallbook.predict.replay.replay`, with vLLM's scheduler."""
    t = core_arrivals(run)
    row = np.searchsorted(run.steps.t1, t, side="right")
    came: dict[int, list[int]] = {}
    for key in np.argsort(t, kind="stable").tolist():
        if t[key] != UNKNOWN:
            came.setdefault(int(row[key]), []).append(key)
    policy = _Witness(settings, left=gave_up(run))
    unsure = np.full(len(run.steps.id), -1)  # the adapter looks once in some steps
    run = replace(run, steps=replace(run.steps, blocked=unsure))
    yield from replay(run, policy, into, came=came, outputs=outputs_of(run))


def made_of(run: Run) -> Ints:
    """How many tokens each request made."""
    made: Ints = np.bincount(run.emissions.request, run.emissions.tokens, len(run.requests.names)).astype(np.int64)
    return made


@dataclass
class _Witness(VllmPolicy):
    """The scheduler, told of those who gave up. left: by step, who was gone when it was planned."""

    left: dict[int, list[int]] = field(default_factory=dict)
    row: int = 0

    def emitting(self, step: Plan) -> list[Sequence]:
        """Who gets a token, whoever gave up meanwhile left out."""
        gone = self.left.get(self.row + 1, ())
        return [seq for seq in super().emitting(step) if seq.key not in gone]

    def commit(self, step: Plan, times: int) -> list[Sequence]:
        """As ever; then those leave who gave up."""
        finished = super().commit(step, times)
        self.row += times
        for key in self.left.get(self.row, ()):
            self.drop(key)
        return finished
