"""How much work a chunk of a prompt is, in tokens at the start of a prompt.

A token attends to all before it, so the same number of tokens is more work late in a long prompt. With a weight of 0
every token is the same: the plain token budget.
"""

from __future__ import annotations

from math import sqrt

__all__ = ["tokens_within", "work_of"]


def work_of(tokens: int, start: int, context_weight: float) -> float:
    """The work of `tokens` from `start` on: 1 each, and the weight for every token that it attends to."""
    return tokens + context_weight * tokens * (start + tokens / 2)


def tokens_within(work: float, start: int, context_weight: float) -> int:
    """The most tokens from `start` on whose work is at most this."""
    if work < 1:
        return 0
    if not context_weight:
        return int(work)
    each = 1 + context_weight * start
    return int((sqrt(each**2 + 2 * context_weight * work) - each) / context_weight)
