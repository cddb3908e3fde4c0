"""What a simulated engine did, and the `Run` that a recorder would have made of it: every report reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np

from stallbook.predict.ports import Request
from stallbook.run import (
    UNKNOWN,
    Deliveries,
    Emissions,
    Evictions,
    Holds,
    Ints,
    Members,
    Pauses,
    Probes,
    Requests,
    Run,
    Segments,
    Steps,
)  # fmt: skip

__all__ = ["Trail"]

STEP: Final = (
    "t0", "sched0", "sched1", "decode0", "emit", "output1", "t1", "graph", "padded", "decode_tokens", "prefill_tokens",
    "kv_tokens", "blocked", "delay",
)  # fmt: skip
"""A row a step: when its parts began and ended, what it did, and how long its decode waited for a core."""
NAMES: Final = ("decode", "engine", "output", "prefill", "sched", "swap", "tok")
DECODE, ENGINE, OUTPUT, PREFILL, SCHED, SWAP, TOK = range(7)
RECORDS: Final = frozenset(
    {"segments", "gc", "evictions", "graph", "members", "os", "kv_tokens", "blocked", "probes"}
)  # fmt: skip


@dataclass
class Trail:
    """Filled by the simulator, a row at a time. Requests are named by their index in `requests`."""

    requests: Sequence[Request]
    steps: list[tuple[int, ...]] = field(default_factory=list)
    emitted: list[tuple[int, ...]] = field(default_factory=list)
    """Who emitted in each step."""
    prefilled: list[tuple[int, int]] = field(default_factory=list)
    """(step, request) of each chunk."""
    pieces: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(step, name, t0, t1, request) of what only some steps have: `tok`, `swap`, `prefill`."""
    pauses: list[tuple[int, int, int]] = field(default_factory=list)
    """(t0, t1, generation)"""
    evictions: list[list[int]] = field(default_factory=list)
    """[request, t0, t1, recompute, lost tokens]"""
    admit: dict[int, int] = field(default_factory=dict)
    finish: dict[int, int] = field(default_factory=dict)
    restarts: int = 0
    end_ns: int = 0

    def columns(self) -> dict[str, Ints]:
        """The steps, a column a name of `STEP`."""
        table = np.array(self.steps, np.int64).reshape(-1, len(STEP))
        return dict(zip(STEP, table.T, strict=True))

    def emissions(self) -> tuple[Ints, Ints]:
        """Request and step of each emission, in the order of time."""
        counts = np.fromiter(map(len, self.emitted), np.int64, len(self.emitted))
        who = np.fromiter(chain.from_iterable(self.emitted), np.int64, int(counts.sum()))
        return who, np.repeat(np.arange(len(counts)), counts)

    def run(self, *, engine: str = "simulated", config: Mapping[str, Any] | None = None, path: str = "") -> Run:
        """The recording of this run."""
        order = sorted(range(len(self.requests)), key=lambda i: (self.requests[i].at_ns, self.requests[i].name))
        row = np.empty(len(order), np.int64)
        row[order] = np.arange(len(order))
        c = self.columns()
        emits = np.fromiter((bool(who) for who in self.emitted), bool, len(self.emitted))
        known = np.full(len(self.steps), -1)
        steps = Steps(
            id=np.arange(len(self.steps)), t0=c["t0"], t1=c["t1"], emit=np.where(emits, c["emit"], UNKNOWN),
            graph=c["graph"], padded=c["padded"], decode_tokens=c["decode_tokens"],
            prefill_tokens=c["prefill_tokens"], kv_tokens=c["kv_tokens"], run_delay=known, cpu=known.copy(),
            blocked=c["blocked"],
        )  # fmt: skip
        who, step = self.emissions()
        return Run(
            requests=self._requests(order), steps=steps, segments=self._segments(c, row), pauses=self._pauses(),
            emissions=_emissions(row[who], step), evictions=self._evictions(row),
            holds=Holds(*_empty(4)), deliveries=Deliveries(*_empty(4)), members=self._members(row[who], step, row),
            probes=Probes(*_empty(2)), names=NAMES, engine=engine, records=RECORDS, config=dict(config or {}),
            path=path, wall_ns=self.end_ns, preemptions=len(self.evictions) + self.restarts, facts={"simulated": True},
        )  # fmt: skip

    def _requests(self, order: Sequence[int]) -> Requests:
        every = [self.requests[i] for i in order]
        admit, finish = (
            np.array([stamps.get(i, UNKNOWN) for i in order], np.int64) for stamps in (self.admit, self.finish)
        )
        arrive, prompt, limit = (
            np.array([getattr(r, name) for r in every], np.int64) for name in ("at_ns", "prompt", "max_new")
        )
        return Requests(tuple(r.name for r in every), arrive, admit, finish, prompt, limit)

    def _segments(self, c: Mapping[str, Ints], row: Ints) -> Segments:
        """The regular parts of all steps, and the pieces of some."""
        steps, every = np.arange(len(c["t0"])), []
        for name, start, end in (
            (SCHED, "sched0", "sched1"), (DECODE, "decode0", "emit"), (OUTPUT, "emit", "output1"),
            (SCHED, "output1", "t1"),
        ):  # fmt: skip
            at = np.flatnonzero(c[end] > c[start])
            delay = c["delay"][at] if name == DECODE else np.zeros(len(at), np.int64)
            blank = np.full(len(at), -1)
            every.append(np.stack([steps[at], np.full(len(at), name), c[start][at], c[end][at], delay, blank]))
        pieces = np.array(self.pieces, np.int64).reshape(-1, 5).T
        owner = np.where(pieces[4] >= 0, row[pieces[4]] if len(row) else -1, -1)
        every.append(np.stack([*pieces[:4], np.zeros(pieces.shape[1], np.int64), owner]))
        table = np.concatenate(every, axis=1)
        table = table[:, np.lexsort((-table[3], table[2]))]
        step, name_, t0, t1, delay, request = map(np.ascontiguousarray, table)
        return Segments(step, name_, np.zeros_like(step), t0, t1, delay, request)

    def _pauses(self) -> Pauses:
        t0, t1, generation = np.array(self.pauses, np.int64).reshape(-1, 3).T.copy()
        return Pauses(t0, t1, generation, np.full(len(t0), ENGINE))

    def _evictions(self, row: Ints) -> Evictions:
        table = np.array(self.evictions, np.int64).reshape(-1, 5)
        table[:, 0] = row[table[:, 0]]
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        return Evictions(*map(np.ascontiguousarray, table.T))

    def _members(self, who: Ints, step: Ints, row: Ints) -> Members:
        chunks = np.array(self.prefilled, np.int64).reshape(-1, 2)
        pairs = np.unique(
            np.concatenate([np.stack([step, who], axis=1), np.stack([chunks[:, 0], row[chunks[:, 1]]], axis=1)]), axis=0
        )
        start = np.zeros(len(self.steps) + 1, np.int64)
        np.cumsum(np.bincount(pairs[:, 0], minlength=len(self.steps)), out=start[1:])
        return Members(np.ones(len(self.steps), np.int64), start, np.ascontiguousarray(pairs[:, 1]))


def _empty(columns: int) -> list[Ints]:
    return [np.empty(0, np.int64) for _ in range(columns)]


def _emissions(request: Ints, step: Ints) -> Emissions:
    order = np.argsort(request, kind="stable")  # the steps are in order already
    return Emissions(request[order], step[order], np.ones(len(order), np.int64))
