"""The queue that an admission watermark makes: what it saves in the gaps, what it costs before the first token.

Beside the simulated wait stands the one of the usual formula: requests that arrive evenly at random, a pool of as many
places as the watermark leaves, each held as long as the simulated requests held theirs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from stallbook.demo.blocks import BLOCK_TOKENS
from stallbook.demo.settings import Settings
from stallbook.predict.model import Engine, setup_of
from stallbook.predict.simulate import simulate
from stallbook.predict.studies.queue import mean_wait
from stallbook.predict.studies.study import Asked, Panel, Study, Values, drawn, figures
from stallbook.predict.trail import Trail

__all__ = ["FORECAST", "FREE", "study"]

MARKS: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)
FREE, FORECAST = "free now", "free at the fullest moment"
BUSY_S: Final = 5.0
"""The busiest stretch of a run of this length is looked at on its own."""


def study(asked: Asked) -> Study:
    """Watermarks against the blocks that are free now, and against those free at the fullest moment to come."""
    engine = asked.engine
    points = []
    for series, by in ((FREE, "free"), (FORECAST, "forecast")):
        for mark in MARKS:
            settings = replace(engine.settings, admit_watermark=mark, admit_by=by)
            points.append(drawn(asked, series, mark, partial(_run, engine, settings)))
    whole = Study(
        "watermark",
        "What does a watermark save in the gaps, and what does its queue cost before the first token?",
        asked.path,
        "watermark (part of the pool)",
        points,
        (
            Panel("Wait for admission, mean", "admitted.mean"),
            Panel("First token, p99", "ttft.p99"),
            Panel("Worst thousandth of gaps (p99.9)", "itl.p99.9"),
            Panel("Preemptions", "preemptions", "", log=False),
        ),
        (),
        (
            "the forecast knows how many tokens each request will make; a server knows a limit at best",
            "formula: Poisson arrivals at the mean rate, M/G/c after Allen and Cunneen, as many places as mean "
            "requests fit into what the watermark leaves of the pool",
        ),
        asked.draws,
        ("formula.wait", "places", "load.mean", "load.busy"),
    )
    return replace(whole, found=_found(whole))


def _run(engine: Engine, settings: Settings, draw: int) -> Values:
    trail = simulate(engine.requests, setup_of(engine, settings, draw=draw))
    return figures(trail) | _formula(trail, settings)


def _formula(trail: Trail, settings: Settings) -> dict[str, float | None]:
    """places: requests that fit; load.mean, load.busy: places that are asked for, in the mean and in the busiest 5 s;
    formula.wait: the mean wait of the formula, in ms.
    """
    done = [key for key in trail.finish if key in trail.admit]
    if not done:
        return {}
    held = np.array([trail.finish[key] - trail.admit[key] for key in done]) / 1e9
    asked = [trail.requests[key] for key in done]
    tokens = np.array([r.prompt + r.max_new / 2 for r in asked])
    blocks = float((held * tokens).sum() / held.sum()) / BLOCK_TOKENS
    places = min(settings.max_num_seqs, int((1 - settings.admit_watermark) * settings.kv_blocks / blocks))
    at = np.array([r.at_ns for r in asked]) / 1e9
    order = np.argsort(at)
    at, held = at[order], held[order]
    span = max(float(at[-1] - at[0]), BUSY_S)
    rate, service = len(at) / span, float(held.mean())
    ends = np.searchsorted(at, at + BUSY_S)
    work = np.concatenate([[0.0], np.cumsum(held)])
    busy = float((work[ends] - work[np.arange(len(at))]).max()) / BUSY_S
    wait = mean_wait(rate, service, places, float(held.var() / service**2))
    return {
        "places": float(places), "load.mean": rate * service, "load.busy": busy,
        "formula.wait": None if wait == float("inf") else wait * 1e3,
    }  # fmt: skip


def _found(made: Study) -> tuple[str, ...]:
    none, some, known = made.at(FREE, 0.0), made.at(FREE, 0.1), made.at(FORECAST, 0.0)
    wait = some.figures.get("formula.wait")
    by_formula = f"{wait.value:,.1f} ms" if wait else "a wait without end"
    return (
        f"A watermark of 10% takes preemptions from {none['preemptions']:,.0f} to {some['preemptions']:,.0f} and p99.9 "
        f"from {none['itl.p99.9']:,.1f} to {some['itl.p99.9']:,.1f} ms; the mean wait for admission goes from "
        f"{none['admitted.mean']:,.0f} to {some['admitted.mean']:,.0f} ms.",
        f"Admission by what all will need, without a watermark: {known['preemptions']:,.0f} preemptions, p99.9 "
        f"{known['itl.p99.9']:,.1f} ms, a wait of {known['admitted.mean']:,.0f} ms.",
        f"At 10% the formula gives {by_formula} where {some['admitted.mean']:,.0f} ms are simulated: "
        f"{some['load.mean']:.0f} of {some['places']:.0f} places are asked for in the mean, {some['load.busy']:.0f} in "
        "the busiest 5 s.",
    )
