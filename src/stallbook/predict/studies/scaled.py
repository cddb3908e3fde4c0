"""The same engine with some of its parts faster or slower."""

from __future__ import annotations

from dataclasses import dataclass

from stallbook.demo.scheduler import Plan
from stallbook.predict.ports import Costs

__all__ = ["Scaled"]


@dataclass(frozen=True)
class Scaled:
    """Costs times a factor: `passes` on decode and prefill, `copies` on swaps."""

    of: Costs
    passes: float = 1.0
    copies: float = 1.0

    @property
    def mixed(self) -> bool:
        """See `Costs`."""
        return self.of.mixed

    def sched(self, step: Plan) -> float:
        """See `Costs`."""
        return self.of.sched(step)

    def swap_out(self, tokens: int) -> float:
        """See `Costs`."""
        return self.of.swap_out(tokens) * self.copies

    def swap_in(self, tokens: int) -> float:
        """See `Costs`."""
        return self.of.swap_in(tokens) * self.copies

    def prefill(self, start: int, tokens: int) -> float:
        """See `Costs`."""
        return self.of.prefill(start, tokens) * self.passes

    def forward(self, step: Plan, kv: int, since: int) -> float:
        """See `Costs`."""
        return self.of.forward(step, kv, since) * self.passes

    def output(self, tokens: int) -> float:
        """See `Costs`."""
        return self.of.output(tokens)

    def close(self, step: Plan) -> float:
        """See `Costs`."""
        return self.of.close(step)
