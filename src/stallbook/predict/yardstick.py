"""How fast the machine was at every step, from work that each step does.

A step that decodes the same rows as the step before, and lies behind nothing else, does the same bookkeeping before its
pass as every other such step. So what it took, over what it usually takes, is the machine's speed at that moment: a
hundred samples a second and more, that cost nothing.

On 72 pairs of recorded runs (a baseline of 45 to 150 s and another rung) what it told of all of the second was 3.1%
(rms) off the speed of its decodes; the probe, timed four times a second, 5.1% by its low quantile, 7.2% by its median.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.predict.laws import medians
from stallbook.predict.observed import Observed, named
from stallbook.predict.replay import intake_steps
from stallbook.predict.speed import Series, over_time
from stallbook.run import UNKNOWN, Ints, Run

__all__ = ["Yardstick", "asking", "collected_in", "plain_steps", "yardstick_of"]

WINDOW_NS: Final = 2_000_000_000
SEEN: Final = 30
"""So often a batch size must have been seen before its steps tell anything."""
MOMENT_NS: Final = 1_000_000_000
MOMENTS: Final = 240
"""A longer run has no more moments than this, but longer ones: the sizes are found by solving for all at once."""
BEHIND_PROMPT: Final = 4
"""Bookkeeping takes 1.9 times as long in the first step behind a prompt and 1.1 times in the fourth."""
STILL: Final = 0.1
"""What a moment weighs by itself (a step weighs 1): it only settles what no step does."""
LEAST: Final = 20
"""Fewer steps than this within a window tell nothing."""
HELD_UP: Final = 3.0
"""What takes longer than so many times what is usual was held up: it counts as that much."""


@dataclass(frozen=True)
class Yardstick:
    """What bookkeeping takes in the plain steps of one run: ns by rows, at the run's usual speed."""

    usual: Mapping[int, float]

    def series(self, seen: Observed) -> Series | None:
        """How much longer than usual the bookkeeping of a run took over time; None where too little of it was seen."""
        t, rows, ns = plain_steps(seen)
        due = np.array([self.usual.get(n, 0.0) for n in rows.tolist()])
        known = due > 0
        if int(known.sum()) < LEAST:
            return None
        due, ns = due[known], ns[known]
        taken = np.minimum(ns, HELD_UP * due)
        return over_time(seen.origin, t[known], taken, due, window_ns=WINDOW_NS, least=LEAST)


def yardstick_of(seen: Observed) -> Yardstick:
    """The yardstick of a run.

    A size that was met mostly while the machine was slow is not costly for that: sizes and moments are found together,
    ln ns = size + moment, from the median of each size within each moment. Least squares, weighed by steps; where no
    size was met in two moments, directly or by way of others, the machine is taken to have been the same.
    """
    t, rows, ns = plain_steps(seen)
    sizes, counts = np.unique(rows, return_counts=True)
    often = np.isin(rows, sizes[counts >= SEEN])
    if not often.any():
        return Yardstick({})
    span = max(MOMENT_NS, int(t[-1] - seen.origin) // MOMENTS)
    known, size = np.unique(rows[often], return_inverse=True)
    moments, moment = np.unique((t[often] - seen.origin) // span, return_inverse=True)
    cells, cell, steps = np.unique(size * len(moments) + moment, return_inverse=True, return_counts=True)
    middle, weight = medians(cell, np.log(ns[often])), np.sqrt(steps)
    row, column = np.arange(len(cells)), len(known) + cells % len(moments)
    design = np.zeros((len(cells), len(known) + len(moments)))
    design[row, cells // len(moments)] = design[row, column] = 1.0
    still = np.hstack([np.zeros((len(moments), len(known))), STILL * np.eye(len(moments))])
    left, right = np.vstack([design * weight[:, None], still]), np.zeros(len(cells) + len(moments))
    right[: len(cells)] = middle * weight
    found, *_ = np.linalg.lstsq(left, right, rcond=None)
    usual = found[: len(known)] + np.average(found[column], weights=steps)
    return Yardstick(dict(zip(known.tolist(), np.exp(usual).tolist(), strict=True)))


def plain_steps(seen: Observed) -> tuple[Ints, Ints, Ints]:
    """The steps that do nothing but decode as many rows as the step before, with their caches as that left them.

    When they began, their rows, and what came before their pass. What else steps do, and what they lie behind, comes
    more or less often under other settings, and all of it makes bookkeeping dearer.
    """
    run, ns = seen.run, seen.tables["sched"]["ns"]
    t0, rows, segments = run.steps.t0, run.steps.decode_tokens, run.segments
    plain = (rows > 0) & (ns > 0) & (rows == np.concatenate([rows[:1], rows[:-1]]))
    for at, behind in (
        (seen.tables["prefill"]["step"], BEHIND_PROMPT), (seen.tables["swap"]["step"], BEHIND_PROMPT),
        (collected_in(run), 1),
        *((segments.step[named(run, name) & (segments.step >= 0)], 0) for name in ("tok", "probe")),
    ):  # fmt: skip
        for k in range(behind + 1):
            plain[np.minimum(at + k, len(plain) - 1)] = False
    plain &= ~asking(seen)
    return t0[plain], rows[plain], ns[plain]


def collected_in(run: Run) -> Ints:
    """The steps in which collections began."""
    step = np.searchsorted(run.steps.t0, run.pauses.t0, side="right") - 1
    return np.asarray(step[step >= 0])


def asking(seen: Observed) -> npt.NDArray[np.bool_]:
    """The steps that hand a prompt to a tokenizer elsewhere, or may ask whether it is back.

    A log does not say when it came: at the latest when a replay needs it. Where requests queue up most of these wait.
    """
    t0, arrive, came = seen.run.steps.t0, seen.run.requests.arrive, intake_steps(seen.run)
    elsewhere = (seen.tok < 0) & (came >= 0) & (arrive != UNKNOWN)
    handed = np.minimum(np.searchsorted(t0, arrive[elsewhere]), len(t0) - 1)
    away = np.zeros(len(t0) + 1, np.int64)
    np.add.at(away, handed, 1)
    np.add.at(away, np.maximum(came[elsewhere], handed) + 1, -1)
    return np.asarray(np.cumsum(away)[:-1] > 0)
