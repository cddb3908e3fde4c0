"""One colour a cause, the same everywhere, on a light and on a dark ground.

Chosen by search for the largest distance between any two of the causes that lead a tail, as seen with normal vision and
with each of the three kinds of colour blindness; each has a contrast of 3:1 to its ground (`tests/test_palette.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stallbook.causes import CLEAN, OTHER

__all__ = ["GROUND", "LEADING", "OTHERS", "SLOTS", "Colour", "colour", "slot"]


@dataclass(frozen=True)
class Colour:
    """As `#rrggbb`, for a light ground and for a dark one."""

    light: str
    dark: str


GROUND: Final = Colour("#ffffff", "#14171c")

SLOTS: Final = {
    "prefill": Colour("#0b69e9", "#068bfb"),
    "preempt": Colour("#d43f57", "#de4406"),
    "graph": Colour("#c3880c", "#ffd58e"),
    "gc": Colour("#55009f", "#b45cb8"),
    "tok": Colour("#2e7800", "#79c412"),
    "fwd": Colour("#87909d", "#5a686e"),
    "residual": Colour("#131211", "#f5f4f9"),
    "os": Colour("#582d00", "#b29278"),
    "slow": Colour("#1d9bdf", "#12cffa"),
    "unscheduled": Colour("#a9479d", "#fd9abb"),
    "pad": Colour("#68717d", "#76868e"),
    "sched": Colour("#0e7c7b", "#3db8ae"),
    "sample": Colour("#6f7d00", "#c3cf5a"),
    "output": Colour("#a8613a", "#dba27c"),
    "frontend": Colour("#7d5ba6", "#c3a6ea"),
    "network": Colour("#4a5fc1", "#96a5f2"),
    "queue": Colour("#41545e", "#a3b8c2"),
    CLEAN: Colour("#87909d", "#5a686e"),
    "other-0": Colour("#00838f", "#4fd0de"),
    "other-1": Colour("#9c6b98", "#dcaed8"),
    "other-2": Colour("#8d6e63", "#cbaea3"),
    "other-3": Colour("#5e7d4f", "#a5c795"),
}
"""By slot: a cause, or one of those that named segments and holds share."""

LEADING: Final = ("prefill", "preempt", "graph", "gc", "tok", "fwd", "residual", "os", "slow", "unscheduled")
"""What a colour-blind reader has to tell apart most often."""

OTHERS: Final = 4


def slot(cause: str) -> str:
    """The slot of a cause. A name that only one log has always gets the same one of a few."""
    if cause in SLOTS:
        return cause
    return f"other-{sum(cause.removeprefix(OTHER).encode('utf-8', 'replace')) % OTHERS}"


def colour(cause: str) -> Colour:
    """The colour of a cause, or of `clean`."""
    return SLOTS[slot(cause)]
