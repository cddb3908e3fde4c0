"""Emissions to gaps: the windows between two consecutive emissions of one request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallbook.run import UNKNOWN, Ints, Run

__all__ = ["Gaps", "find_gaps"]


@dataclass(frozen=True)
class Gaps:
    """A row a gap, ordered by (request, time). `frm` and `to` count emitting steps, not steps.

    `emit` (ns) and `step` (a row of `Run.steps`) describe the emitting steps, in order.
    """

    request: Ints
    frm: Ints
    to: Ints
    tokens: Ints
    """Tokens of the emission that ends the gap."""
    emit: Ints
    step: Ints

    def __len__(self) -> int:
        return len(self.request)

    @cached_property
    def step_from(self) -> Ints:
        """Row of the step whose emission starts the gap."""
        return self.step[self.frm]

    @cached_property
    def step_to(self) -> Ints:
        """Row of the step whose emission ends the gap."""
        return self.step[self.to]

    @cached_property
    def t0(self) -> Ints:
        """Start of each gap, ns."""
        return self.emit[self.frm]

    @cached_property
    def t1(self) -> Ints:
        """End of each gap, ns."""
        return self.emit[self.to]


def find_gaps(run: Run) -> Gaps:
    """All gaps of a run. A request of k emissions has k - 1 of them."""
    emitting = np.flatnonzero(run.steps.emit != UNKNOWN)
    ordinal = np.full(len(run.steps.id), -1, np.int64)
    ordinal[emitting] = np.arange(len(emitting))
    e = run.emissions
    at = ordinal[e.step]
    same = e.request[1:] == e.request[:-1]
    return Gaps(
        request=e.request[1:][same],
        frm=at[:-1][same],
        to=at[1:][same],
        tokens=e.tokens[1:][same],
        emit=run.steps.emit[emitting],
        step=emitting.astype(np.int64),
    )
