"""Steps that repeat: how often the scheduler would give the same plan again, and many such steps committed at once.

Between an arrival and the next finish, most steps only decode the same requests. A simulator need not plan each of
them. What counts as the same is the scheduler's own business, so it stands beside it; a test plans them one by one.
"""

from __future__ import annotations

from stallbook.demo.blocks import BLOCK_TOKENS
from stallbook.demo.scheduler import ADMITS, BY_KV, BY_SEQS, Limits, Plan, Sequence, State, commit

__all__ = ["commit_steady", "steady_steps"]


def steady_steps(state: State, limits: Limits, step: Plan) -> int:
    """How many steps in a row, this one counted, `plan` gives `step` if nothing arrives. At least 1.

    Only steps that decode every running request and do nothing else repeat. The pool only shrinks meanwhile, so who
    does not fit now does not fit later; the last of the steps may finish requests, none before it does.
    """
    rows = step.decodes
    if not rows or step.readmit or step.evict or step.chunks or step.left_out or len(rows) != len(state.running):
        return 1
    if state.waiting:
        if step.blocked not in (BY_KV, BY_SEQS) or limits.left_for_prefill(len(rows)) < 1:
            return 1
        if limits.forecast:  # what a request will need beside the others changes with every step
            return 1
    elif step.blocked != ADMITS:
        return 1
    most = min(seq.max_new - seq.generated for seq in rows)
    if state.free >= len(rows) * (most // BLOCK_TOKENS + 1):
        return most
    crossing = [0] * BLOCK_TOKENS
    for seq in rows:
        crossing[-seq.computed % BLOCK_TOKENS] += 1
    free = state.free
    for ahead in range(most):
        free -= crossing[ahead % BLOCK_TOKENS]
        if free < 0:
            return max(1, ahead)
    return most


def commit_steady(state: State, step: Plan, times: int) -> list[Sequence]:
    """Apply a plan that was executed `times` times in a row, at most as often as it is steady."""
    if times > 1:
        for seq in step.decodes:
            before = -(-seq.computed // BLOCK_TOKENS)
            seq.computed += times - 1
            seq.generated += times - 1
            state.free -= -(-seq.computed // BLOCK_TOKENS) - before
    return commit(state, step)
