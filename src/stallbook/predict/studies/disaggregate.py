"""Chunked against disaggregated prefill: two engines that share the load, or one that prefills for the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stallbook.demo.limits import limits_of
from stallbook.demo.scheduler import Plan
from stallbook.demo.settings import Settings
from stallbook.predict.model import Engine, setup_of
from stallbook.predict.policy import DemoPolicy
from stallbook.predict.ports import NEVER_RAN, Request
from stallbook.predict.simulate import simulate
from stallbook.predict.studies.scaled import Scaled
from stallbook.predict.studies.study import Asked, Panel, Study, Values, drawn
from stallbook.predict.trail import Trail
from stallbook.run import Ints

__all__ = ["SLOW", "SPLIT", "study"]

LOADS: Final = (0.6, 0.8, 1.0, 1.2)
"""Of the recorded run's load, for each of two engines."""
BUDGETS: Final = (2048, 256, 128)
SPLIT, SLOW = "prefill | decode", "prefill | decode, link 10x slower"
WHOLE: Final = 2048
"""The budget of the engine that only prefills: nobody decodes there."""
UNBOUND: Final = 1_000_000
"""What comes over the link is no prefill: no budget holds it back."""


def study(asked: Asked) -> Study:
    """Three budgets on two chunked engines, two speeds of the link between two specialised ones, over the load."""
    engine = asked.engine
    points = []
    for load in LOADS:
        requests = [replace(r, at_ns=round(r.at_ns / (2 * load))) for r in engine.requests]
        for budget in BUDGETS:
            work = _Pair(engine, requests, budget)
            points.append(drawn(asked, chunked(budget), load, work.chunked))
        for series, link in ((SPLIT, 1.0), (SLOW, 10.0)):
            work = _Pair(engine, requests, WHOLE, link)
            points.append(drawn(asked, series, load, work.split))
    whole = Study(
        "disaggregate",
        "Two engines: share the load in chunks, or let one prefill for the other?",
        asked.path,
        "load of each engine (1: as recorded)",
        points,
        (
            Panel("Worst hundredth of gaps (p99)", "itl.p99"),
            Panel("Worst thousandth of gaps (p99.9)", "itl.p99.9"),
            Panel("First token, p50", "ttft.p50"),
            Panel("First token, p99", "ttft.p99"),
        ),
        (),
        (
            "both engines are the recorded one, on a machine of its own; requests alternate between chunked ones",
            "a cache travels as this run's swaps did, out and in (a run without swaps: for nothing); sending it holds "
            "back that request alone, taking it in the whole decoding engine",
            "the prefilling engine makes the first token; its pool is free of a request once that is made",
        ),
        asked.draws,
        ("itl.p50", "tokens_per_s", "preemptions"),
    )
    return replace(whole, found=_found(whole))


def chunked(budget: int) -> str:
    """The line of two engines with this budget."""
    return f"2 chunked, budget {budget}"


class _Received(Scaled):
    """The engine that only decodes: a prompt's cache is taken in from the link instead of computed."""

    def prefill(self, start: int, tokens: int) -> float:
        """See `Costs`."""
        return self.swap_in(tokens)

    def forward(self, step: Plan, kv: int, since: int) -> float:
        """See `Costs`: no prompt runs here, so the caches are its own."""
        return super().forward(step, kv, NEVER_RAN)


@dataclass(frozen=True)
class _Pair:
    engine: Engine
    requests: Sequence[Request]
    budget: int
    link: float = 1.0

    @property
    def settings(self) -> Settings:
        return replace(self.engine.settings, token_budget=max(self.budget, self.engine.settings.max_num_seqs))

    def chunked(self, draw: int) -> Values:
        """Every other request goes to either engine."""
        trails = []
        for i in (0, 1):
            setup = setup_of(self.engine, self.settings, draw=draw + 500 * i)
            trails.append(simulate(self.requests[i::2], setup))
        return _figures([_emitted(trail) for trail in trails], trails)

    def split(self, draw: int) -> Values:
        """One engine prefills and makes the first token, the other takes the cache over and makes the rest."""
        first = [replace(r, max_new=1) for r in self.requests]
        trail = simulate(first, setup_of(self.engine, self.settings, draw=draw))
        kept = [key for key in range(len(first)) if key in trail.finish and self.requests[key].max_new > 1]
        out = self.engine.costs.swap_out
        second = [
            replace(
                self.requests[key], prompt=self.requests[key].prompt + 1, max_new=self.requests[key].max_new - 1,
                at_ns=round(trail.finish[key] + self.link * out(self.requests[key].prompt + 1)), tok_ns=0.0,
            )
            for key in kept
        ]  # fmt: skip
        setup = setup_of(self.engine, self.settings, draw=draw + 500)
        limits = replace(limits_of(self.settings), token_budget=UNBOUND, decode_weight=0.0, context_weight=0.0)
        costs = _Received(setup.costs, copies=self.link)
        setup = replace(setup, policy=DemoPolicy(limits), costs=costs, on_loop=True)  # nothing is tokenized again
        rest = simulate(second, setup)
        early, late = _emitted(trail), _emitted(rest)
        late = replace(late, request=np.array(kept, np.int64)[late.request])
        return _figures([_joined(early, late)], [trail, rest])


@dataclass(frozen=True)
class _Emitted:
    """Who emitted when, and when each request had arrived."""

    request: Ints
    t: Ints
    arrived: Ints


def _emitted(trail: Trail) -> _Emitted:
    who, step = trail.emissions()
    stamps = trail.columns()["emit"][step]
    return _Emitted(who, stamps, np.array([r.at_ns for r in trail.requests], np.int64))


def _joined(early: _Emitted, late: _Emitted) -> _Emitted:
    """The tokens of both, with the arrivals of the first."""
    request, t = np.concatenate([early.request, late.request]), np.concatenate([early.t, late.t])
    order = np.argsort(t, kind="stable")
    return _Emitted(request[order], t[order], early.arrived)


def _figures(streams: Sequence[_Emitted], trails: Sequence[Trail]) -> Values:
    gaps, waits = [], []
    for one in streams:
        order = np.argsort(one.request, kind="stable")
        request, t = one.request[order], one.t[order]
        same = request[1:] == request[:-1]
        gaps.append(np.diff(t)[same])
        first = np.flatnonzero(np.concatenate([[True], ~same])) if len(request) else np.zeros(0, np.int64)
        waits.append(t[first] - one.arrived[request[first]])
    gap, wait = np.concatenate(gaps) / 1e6, np.concatenate(waits) / 1e6
    told = {f"itl.p{q:g}": _at(gap, q) for q in (50, 90, 99, 99.9)} | {f"ttft.p{q}": _at(wait, q) for q in (50, 99)}
    end = max(trail.end_ns for trail in trails)
    told["tokens_per_s"] = sum(len(one.t) for one in streams) / end * 1e9 if end else None
    told["preemptions"] = float(sum(len(trail.evictions) + trail.restarts for trail in trails))
    return told


def _at(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], q: float) -> float | None:
    return float(np.percentile(values, q)) if len(values) else None


def _found(made: Study) -> tuple[str, ...]:
    top = max(p.x for p in made.points)
    told = []
    for load in (1.0, top):
        best = min((made.at(chunked(n), load) for n in BUDGETS), key=lambda p: p["itl.p99"])
        split = made.at(SPLIT, load)
        told.append(
            f"At {load:g} times the recorded load the best chunked p99 is {best['itl.p99']:.1f} ms ({best.series}), "
            f"with a first token at {best['ttft.p50']:,.0f} ms (p50); disaggregated it is "
            f"{split['itl.p99']:.1f} ms, with {split['ttft.p50']:,.0f} ms."
        )
    slow, split = made.at(SLOW, 1.0), made.at(SPLIT, 1.0)
    told.append(f"A link ten times slower takes p99 from {split['itl.p99']:.1f} to {slow['itl.p99']:.1f} ms.")
    return tuple(told)
