"""How long a thread waited for a CPU, stretch by stretch, from how long it was off the CPU in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["AWAY_NS", "shared"]

AWAY_NS: Final = 500_000
"""A thread that was off the CPU for less than this is not asked why: the kernel's answer is a long call."""


def shared(stretches: Sequence[tuple[int, ...]], waited: int) -> Sequence[int]:
    """The delay of each (length, CPU time), in ns; -1 where `waited`, what the kernel counted, is: it does not count.

    A stretch in which the thread was away for less than `AWAY_NS` has none. Of the others none has more than it was
    away for, and together they have no more than the kernel counted.
    """
    if waited < 0:
        return [-1] * len(stretches)
    aways = [length - used if length - used >= AWAY_NS else 0 for length, used in stretches]
    away = sum(aways)
    return aways if waited >= away else [waited * one // away for one in aways]
