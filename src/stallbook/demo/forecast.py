"""What requests will need of the pool before they are done, if each makes one token a step from now on.

It goes by the lengths that requests were told to reach. The demonstrator's reach them to the token.
"""

from __future__ import annotations

from collections.abc import Iterable

from stallbook.demo.blocks import BLOCK_TOKENS

__all__ = ["peak_blocks"]


def peak_blocks(requests: Iterable[tuple[int, int]]) -> int:
    """The most blocks that these requests hold together from now on: `(tokens held, tokens still to make)` each.

    Together they hold more with every step, until one of them is done: so the most is held right before one ends. Each
    request's last block is taken for as good as empty.
    """
    tokens = peak = 0
    for rows, (held, left) in enumerate(sorted(requests, key=lambda request: -request[1]), 1):
        tokens += held
        peak = max(peak, tokens + rows * (left + BLOCK_TOKENS - 1))
    return peak // BLOCK_TOKENS
