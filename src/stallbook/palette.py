"""One colour a cause, the same everywhere, on a light and on a dark ground.

Chosen by search for the largest distance between any two of the causes that lead a tail, as seen with normal vision and
with each of the three kinds of colour blindness; each has a contrast of 3:1 to its ground (`tests/test_palette.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stallbook.causes import CLEAN, OTHER

__all__ = ["GROUND", "LEADING", "OTHERS", "SLOTS", "TOGETHER", "Colour", "colour", "slot"]


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
    "other-0": Colour("#d87170", "#b86c61"),
    "other-1": Colour("#9d7abb", "#a287b9"),
    "other-2": Colour("#01357e", "#6b7cd4"),
    "other-3": Colour("#8e2637", "#98a239"),
    "other-4": Colour("#5a4188", "#8158a1"),
    "other-5": Colour("#592e58", "#b0e8c8"),
    "other-6": Colour("#630232", "#158a38"),
    "other-7": Colour("#312555", "#25eef2"),
}
"""By slot: a cause, or one of those that named segments and holds share."""

LEADING: Final = ("prefill", "preempt", "graph", "gc", "tok", "fwd", "residual", "os", "slow", "unscheduled")
"""What a colour-blind reader has to tell apart most often."""

OTHERS: Final = 8
TOGETHER: Final = ("logits", "runner", "ipc", "loop", "dispatch", "launch", "draft", "kv")
"""Named segments and holds that come in one log, each with a slot of its own."""


def slot(cause: str) -> str:
    """The slot of a cause. A name that only one log has always gets the same one of a few."""
    if cause in SLOTS:
        return cause
    name = cause.removeprefix(OTHER)
    nth = TOGETHER.index(name) if name in TOGETHER else sum(name.encode("utf-8", "replace")) % OTHERS
    return f"other-{nth}"


def colour(cause: str) -> Colour:
    """The colour of a cause, or of `clean`."""
    return SLOTS[slot(cause)]
