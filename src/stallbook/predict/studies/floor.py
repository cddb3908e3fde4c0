"""The floor under a step: what is left of a gap when the forward pass is ten times faster and the rest is not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from stallbook.partition import partition
from stallbook.predict.model import Engine, setup_of
from stallbook.predict.simulate import simulate
from stallbook.predict.studies.scaled import Scaled
from stallbook.predict.studies.study import Asked, Panel, Study, Values, drawn, figures
from stallbook.predict.trail import Trail
from stallbook.tally import tally

__all__ = ["SAME", "STEEPER", "study"]

SPEEDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
SAME, STEEPER = "same load", "load grows as fast"
TEN: Final = 10.0
FLOOR: Final = ("sched", "output", "residual", "gc", "tok", "preempt", "os")
"""Causes that a faster forward pass leaves as they are."""


def study(asked: Asked) -> Study:
    """Passes up to fifty times faster, under the same load and under one that grows with them."""
    engine = asked.engine
    points = []
    for series in (SAME, STEEPER):
        for fast in SPEEDS:
            load = fast if series == STEEPER else 1.0
            points.append(drawn(asked, series, fast, partial(_run, engine, fast, load)))
    whole = Study(
        "floor",
        "When the forward pass is ten times faster, what sets the gap?",
        asked.path,
        "times faster",
        points,
        (
            Panel("Where the time of all gaps goes, same load", "share", "", causes=True),
            Panel("Median gap (p50)", "itl.p50"),
            Panel("Worst hundredth of gaps (p99)", "itl.p99"),
            Panel("Tokens a second", "tokens_per_s", ""),
        ),
        (),
        (
            "decode and prefill take that much less; planning, output, collections and tokenizing stay as recorded",
            "the noise of a step is a factor up to two, which shrinks with its pass, and time beyond, which does not",
            "where load grows as fast, the same requests arrive closer together; past capacity they queue",
        ),
        asked.draws,
        ("itl.p99.9", "ttft.p50", "floor"),
    )
    return replace(whole, found=_found(whole))


def _run(engine: Engine, fast: float, load: float, draw: int) -> Values:
    setup = setup_of(engine, engine.settings, draw=draw)
    requests = [replace(r, at_ns=round(r.at_ns / load)) for r in engine.requests]
    trail = simulate(requests, replace(setup, costs=Scaled(setup.costs, passes=1 / fast)))
    return figures(trail) | _shares(trail)


def _shares(trail: Trail) -> dict[str, float | None]:
    """Shares of all gap time by cause; `floor`: of them, what the pass does not touch."""
    share = tally(partition(trail.run())).mix().share
    told: dict[str, float | None] = {f"share.{cause}": part for cause, part in share.items()}
    told["floor"] = sum(share.get(cause, 0.0) for cause in FLOOR)
    return told


def _found(made: Study) -> tuple[str, ...]:
    one, ten = made.at(SAME, 1.0), made.at(SAME, TEN)
    fast = made.at(STEEPER, TEN)
    slow = made.at(STEEPER, 1.0)
    return (
        f"With a pass ten times faster the median gap falls from {one['itl.p50']:.2f} to {ten['itl.p50']:.2f} ms, "
        f"{one['itl.p50'] / ten['itl.p50']:.1f} times, and p99 from {one['itl.p99']:.1f} to {ten['itl.p99']:.1f} ms, "
        f"{one['itl.p99'] / ten['itl.p99']:.1f} times.",
        f"What the pass does not touch is then {ten['floor']:.0%} of all gap time, after {one['floor']:.0%}.",
        f"Offered ten times the load, the engine makes {fast['tokens_per_s'] / slow['tokens_per_s']:.1f} times the "
        f"tokens: its median gap is {fast['itl.p50']:.1f} ms.",
    )
