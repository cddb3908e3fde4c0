"""How fast the machine was while a run lasted: a series, its level, and when the engine had to wait for a core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.run import Ints, Run

__all__ = ["BIN_NS", "Series", "Waits", "over_time", "waits_of"]

BIN_NS: Final = 250_000_000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Speed over time: `values[i]` from `origin + i * BIN_NS` on; its ends reach on for ever. Slower is more."""

    origin: int
    values: Floats

    @property
    def level(self) -> float:
        """The median over the run."""
        return float(np.median(self.values))

    def at(self, t: Ints) -> Floats:
        """The speed at these times."""
        row = np.clip((t - self.origin) // BIN_NS, 0, len(self.values) - 1)
        return np.asarray(self.values[row])

    @property
    def moved(self) -> float:
        """How far apart its slowest and its fastest tenth are, as a fraction of the level."""
        low, high = np.quantile(self.values, (0.1, 0.9))
        return float((high - low) / self.level)


def over_time(origin: int, t: Ints, taken: Floats, due: Floats, *, window_ns: int, least: int) -> Series | None:
    """What steps took over what was due for them, within a window around each moment from `origin` on.

    t: when they began, in order; taken, due: ns of each. None where no window holds `least` of them.
    """
    took, owed = (np.concatenate([[0.0], np.cumsum(one)]) for one in (taken, due))
    edges = np.arange(origin, t[-1] + BIN_NS, BIN_NS)
    low, high = (np.searchsorted(t, edges + way * window_ns // 2) for way in (-1, 1))
    enough = high - low >= least
    if not enough.any():
        return None
    values = (took[high] - took[low])[enough] / (owed[high] - owed[low])[enough]
    return Series(origin, np.interp(np.arange(len(edges)), np.flatnonzero(enough), values))


@dataclass(frozen=True)
class Waits:
    """When the engine's thread waited for a core (from the start of the run), and for how long: the OS's own count.

    They belong to the machine, not to the work: an engine that works at that moment has to wait.
    """

    t: Ints
    ns: Ints


def waits_of(run: Run, origin: int) -> Waits:
    """All waits that a run recorded, of its segments and of its steps."""
    t = np.concatenate([run.segments.t0, run.steps.t0]) - origin
    ns = np.concatenate([run.segments.run_delay, run.steps.run_delay])
    order = np.argsort(t, kind="stable")
    order = order[ns[order] > 0]
    return Waits(t[order], ns[order])
