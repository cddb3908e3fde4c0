"""What a decode step should have cost, for `slow`: an explicit line, the post's line, or whatever a test hands in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from slow_log import Log, Step

Cost = Callable[[Step, int], Fraction | None]
"""The baseline of a step at a number of rows, in ns; None where it cannot be told."""
Baseline = Mapping[str, Any] | Cost | None
Points = Callable[[], list[tuple[int, int]]]


def cost_function(log: Log, baseline: Baseline, points: Points | None) -> Cost:
    """The given baseline, else the header's, else a line through the points, else none at all."""
    given = baseline if baseline is not None else log.header.get("baseline")
    if callable(given):
        return given
    if given is not None:
        return linear(*(Fraction(str(given.get(k) or 0)) for k in ("fixed_ns", "row_ns", "kv_token_ns")))
    return least_squares(points()) if points else unknown


def least_squares(points: list[tuple[int, int]]) -> Cost:
    """The post's line. With one distinct size its solver takes the smallest coefficients of scaled columns."""
    if not points:
        return unknown
    x = Fraction(sum(p for p, _ in points), len(points))
    y = Fraction(sum(m for _, m in points), len(points))
    spread = sum((p - x) ** 2 for p, _ in points)
    if spread:
        slope = sum((p - x) * (m - y) for p, m in points) / spread
        return linear(y - slope * x, slope, Fraction(0))
    return linear(y / 2, y / (2 * x), Fraction(0)) if x else unknown


def linear(fixed: Fraction, row: Fraction, kv_token: Fraction) -> Cost:
    """A baseline linear in rows and KV tokens; KV tokens that are needed and missing make it unknown."""

    def cost(step: Step, rows: int) -> Fraction | None:
        if kv_token and step.kv_tokens is None:
            return None
        return fixed + row * rows + kv_token * (step.kv_tokens or 0)

    return cost


def unknown(step: Step, rows: int) -> Fraction | None:
    """No baseline."""
    return None
