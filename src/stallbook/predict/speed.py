"""How fast the machine was while a run lasted, from the probe in its log: a series, and its level.

One sample of a small product scatters by what happens in its 50 us; the speed of a machine moves over seconds. The
series is a running low quantile over `WINDOW_S`: what disturbs a sample only ever makes it longer, and on 35 recorded
runs the low quantiles followed the decodes' own speed better than the median did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.run import Ints, Run

__all__ = ["Series", "Waits", "probe_series", "waits_of"]

WINDOW_S: Final = 16.0
QUANTILE: Final = 0.2
BIN_NS: Final = 250_000_000
LEAST: Final = 9
"""Fewer samples than this are no series."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Speed over time, in ns of the probe: `values[i]` from `origin + i * BIN_NS` on; its ends reach on for ever."""

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


def probe_series(run: Run) -> Series | None:
    """The series of a run; None where its log has too few probes."""
    t, ns = run.probes.t, run.probes.ns.astype(np.float64)
    good = ns > 0
    t, ns = t[good], ns[good]
    if len(ns) < LEAST:
        return None
    edges = np.arange(t[0], t[-1] + BIN_NS, BIN_NS)
    half = int(WINDOW_S * 1e9 / 2)
    low, high = np.searchsorted(t, edges - half), np.searchsorted(t, edges + half, side="right")
    values = np.array([np.quantile(ns[a:b], QUANTILE) if b > a else np.nan for a, b in zip(low, high, strict=True)])
    known = ~np.isnan(values)
    values = np.interp(np.arange(len(values)), np.flatnonzero(known), values[known])
    return Series(int(t[0]), values)
