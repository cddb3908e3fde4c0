"""Emissions to gaps: the windows between two consecutive emissions of one request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallbook import fast
from stallbook.run import UNKNOWN, Ints, Run

__all__ = ["Gaps", "Rhythm", "find_gaps", "find_rhythm"]


@dataclass(frozen=True)
class Rhythm:
    """The emitting steps, in order, and how the gaps fall on them.

    emit: their stamps, ns. step: their rows in `Run.steps`. ordinal: for each step its place among them, or -1.
    weight: for each the number of gaps that span exactly the interval which it ends. skipping: the other gaps,
    which skip emitting steps, by the row in `Run.emissions` that ends the gap.
    """

    emit: Ints
    step: Ints
    ordinal: Ints
    weight: Ints
    skipping: Ints


@dataclass(frozen=True)
class Gaps:
    """A row a gap, ordered by (request, time). `frm` and `to` count emitting steps as `Rhythm` does.

    end: the row in `Run.emissions` that ends the gap. tokens: the tokens that it brought.
    """

    request: Ints
    frm: Ints
    to: Ints
    end: Ints
    tokens: Ints
    rhythm: Rhythm

    def __len__(self) -> int:
        return len(self.request)

    @cached_property
    def step_from(self) -> Ints:
        """Row of the step whose emission starts the gap."""
        return self.rhythm.step[self.frm]

    @cached_property
    def step_to(self) -> Ints:
        """Row of the step whose emission ends the gap."""
        return self.rhythm.step[self.to]

    @cached_property
    def t0(self) -> Ints:
        """Start of each gap, ns."""
        return self.rhythm.emit[self.frm]

    @cached_property
    def t1(self) -> Ints:
        """End of each gap, ns."""
        return self.rhythm.emit[self.to]


def find_rhythm(run: Run) -> Rhythm:
    """Count the gaps of a run on its emitting steps, without making a table of them."""
    step = np.flatnonzero(run.steps.emit != UNKNOWN)
    ordinal = np.full(len(run.steps.id), -1, np.int64)
    ordinal[step] = np.arange(len(step))
    e = run.emissions
    if fast.worth(len(e.step)):
        weight, skipping = fast.scan(e.request, e.step, ordinal, len(step))
    else:
        jump = np.diff(ordinal[e.step])
        same = e.request[1:] == e.request[:-1]
        weight = np.bincount(ordinal[e.step[1:][same & (jump == 1)]], minlength=len(step))
        skipping = np.flatnonzero(same & (jump != 1)) + 1
    return Rhythm(run.steps.emit[step], step, ordinal, weight, skipping)


def find_gaps(run: Run, rhythm: Rhythm) -> Gaps:
    """All gaps of a run as a table. A request of k emissions has k - 1 of them."""
    e = run.emissions
    end = np.flatnonzero(e.request[1:] == e.request[:-1]) + 1
    at = rhythm.ordinal[e.step]
    return Gaps(e.request[end], at[end - 1], at[end], end, e.tokens[end], rhythm)
