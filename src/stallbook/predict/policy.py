"""A policy: the scheduler that a simulated engine runs. The demonstrator's own is one; another brings its own plan.

Every policy speaks in the words of `stallbook.demo.scheduler`: requests are `Sequence`s, a step is a `Plan`.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from typing import Protocol

from stallbook.demo.scheduler import Limits, Plan, Sequence, State, plan
from stallbook.demo.steady import commit_steady, steady_steps

__all__ = ["DemoPolicy", "Policy"]


class Policy(Protocol):
    """What the simulator asks of a scheduler."""

    @property
    def busy(self) -> bool:
        """Whether any request is left to serve."""

    @property
    def running(self) -> Row[Sequence]:
        """Who runs now."""

    def add(self, seq: Sequence) -> None:
        """A request joins the waiting line; ValueError where it can never be served."""

    def plan(self) -> Plan:
        """What the next step does; changes nothing."""

    def emitting(self, step: Plan) -> Row[Sequence]:
        """Who gets a token out of this step."""

    def steady(self, step: Plan) -> int:
        """How many steps in a row this plan would come again if nothing arrives; 1 is always right."""

    def commit(self, step: Plan, times: int) -> list[Sequence]:
        """The plan was executed so often, in a row; who is finished by it."""


@dataclass
class DemoPolicy:
    """The demonstrator's scheduler, as it is."""

    limits: Limits
    state: State = field(init=False)

    def __post_init__(self) -> None:
        self.state = State(self.limits.kv_blocks)

    @property
    def busy(self) -> bool:
        """See `Policy`."""
        return self.state.busy

    @property
    def running(self) -> Row[Sequence]:
        """See `Policy`."""
        return self.state.running

    def add(self, seq: Sequence) -> None:
        """See `Policy`."""
        self.state.add(seq, self.limits)

    def plan(self) -> Plan:
        """See `Policy`."""
        return plan(self.state, self.limits)

    def emitting(self, step: Plan) -> Row[Sequence]:
        """See `Policy`."""
        return step.decodes

    def steady(self, step: Plan) -> int:
        """See `Policy`."""
        return steady_steps(self.state, self.limits, step)

    def commit(self, step: Plan, times: int) -> list[Sequence]:
        """See `Policy`."""
        return commit_steady(self.state, step, times)
