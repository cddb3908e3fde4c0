"""What a decode pays for the caches that a prompt left behind: its weights and its rows' KV come from memory again.

The pass in the step of a prompt pays most, the next ones less and less; the more rows a batch has the less of it
had been in the cache before, and the sooner a pass has it back. The shapes are medians over six recorded runs of the
demonstrator (about 0.6, 0.55, 0.27, 0.15 and 0.09 ms for one row, 0.4 and 0.06 ms for eight); how much it is, is
fitted to each run.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["STEPS", "TERMS", "columns", "shares"]

TERMS: Final = ("pass with a prompt", "pass behind one")
FULL: Final = 24
"""A batch of so many rows finds nothing in the cache, prompt or none."""
LEFT: Final = 0.57
"""So much of it is left a step later."""
ROWS: Final = -0.7
"""It falls with this power of the rows."""
STEPS: Final = 12
"""So many steps later nothing is left that could be told."""

Floats = npt.NDArray[np.float64]


@cache
def shares(padded: int, since: int) -> tuple[float, float]:
    """How much of each term a pass of so many rows pays, so many steps after a prompt."""
    if since > STEPS or padded >= FULL:
        return 0.0, 0.0
    if not since:
        return 1.0 - padded / FULL, 0.0
    return 0.0, float(LEFT ** (since - 1) * padded**ROWS)


def columns(padded: Any, since: Any) -> tuple[Floats, Floats]:
    """Both terms of many passes."""
    found = [shares(n, k) for n, k in zip(padded.tolist(), since.tolist(), strict=True)]
    first, after = np.array(found, np.float64).reshape(-1, 2).T
    return first, after
