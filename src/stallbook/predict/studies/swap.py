"""Swap against recompute: what an eviction costs its victim and everybody else, by how scarce memory is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from stallbook.demo.settings import MIN_KV_BLOCKS
from stallbook.errors import StallbookError
from stallbook.predict.model import Engine, setup_of
from stallbook.predict.simulate import simulate
from stallbook.predict.studies.scaled import Scaled
from stallbook.predict.studies.study import Asked, Panel, Study, Values, drawn, figures

__all__ = ["study"]

POOLS: Final = (0.7, 0.85, 1.0, 1.2)
"""Of the recorded run's KV blocks."""
COPIES: Final = (1.0, 10.0, 100.0)
"""How much slower than measured the copies are."""
RECOMPUTE: Final = "recompute"
TYPICAL: Final = 600
"""Tokens of a context, for what one eviction costs."""


def study(asked: Asked) -> Study:
    """Both modes over pools of several sizes, swap at several speeds of its copies."""
    engine = asked.engine
    if not engine.costs.laws["swap_out"].rows:
        raise StallbookError(
            "no-swap", "this run holds no swap, so its copies have no price", "record one with evictions", asked.path
        )
    lines: list[tuple[str, str, float]] = [(named(n), "swap", n) for n in COPIES] + [(RECOMPUTE, "recompute", 1.0)]
    points = []
    for series, mode, copies in lines:
        for part in POOLS:
            blocks = max(MIN_KV_BLOCKS, round(part * engine.settings.kv_blocks))
            points.append(drawn(asked, series, blocks, partial(_run, engine, mode, copies, blocks)))
    whole = Study(
        "swap",
        "Is it better to copy an evicted cache out and back, or to drop it and compute it again?",
        asked.path,
        "KV blocks",
        points,
        (
            Panel("Worst thousandth of gaps (p99.9)", "itl.p99.9"),
            Panel("How long an eviction lasts, mean", "away.mean"),
            Panel("Preemptions", "preemptions", "", log=False),
        ),
        (),
        (
            "recompute costs what prefill costs in this run; the copies cost what its swaps cost, times the factor",
            "a copy blocks the engine; an engine that copies beside its steps hides it",
        ),
        asked.draws,
        ("itl.p99", "ttft.p50", "tokens_per_s", "redone"),
    )
    return replace(whole, found=_found(engine, whole))


def named(copies: float) -> str:
    """The line of swap at a speed of its copies."""
    return "swap" if copies == 1 else f"swap, copies {copies:g}x"


def _run(engine: Engine, mode: str, copies: float, blocks: int, draw: int) -> Values:
    settings = replace(engine.settings, preemption=mode, kv_blocks=blocks)
    setup = setup_of(engine, settings, draw=draw)
    return figures(simulate(engine.requests, replace(setup, costs=Scaled(setup.costs, copies=copies))))


def _found(engine: Engine, made: Study) -> tuple[str, ...]:
    costs = engine.costs
    copy = (costs.swap_out(TYPICAL) + costs.swap_in(TYPICAL)) / 1e6
    again = costs.prefill(0, TYPICAL) / 1e6
    least = min(p.x for p in made.points)
    swap, redo = made.at("swap", least), made.at(RECOMPUTE, least)
    told = [
        f"A context of {TYPICAL} tokens takes {copy:.2f} ms to copy out and back and {again:.1f} ms to compute again: "
        f"copies {again / copy:.0f} times slower would cost the same.",
        f"With {least:,.0f} blocks p99.9 is {swap['itl.p99.9']:,.0f} ms with swap and {redo['itl.p99.9']:,.0f} ms with "
        "recompute.",
    ]
    if swap["preemptions"] and redo["preemptions"]:
        told.append(
            f"An eviction lasts {swap['away.mean']:,.0f} ms there with swap, {redo['away.mean']:,.0f} with recompute."
        )
    work = [copy / p["away.mean"] for p in made.points if p.series == "swap" and p["away.mean"] > 0]
    if work:
        told.append(
            f"Of an eviction's length, the copies are {np.median(work):.2%} (median of the pools): the rest is waiting."
        )
    return tuple(told)
