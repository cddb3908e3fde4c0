"""The machine probe: one fixed small product, timed a few times a second at step borders.

The demonstrator runs near saturation, where a machine that is 10% slower doubles the median. The probe does the
same work on every machine and in every run (its size is fixed, not calibrated), so a report can show whether
the machine held still, and a study can divide its speed out. It takes about 50 us, four times a second: 0.02%.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

__all__ = ["PROBE_PERIOD_NS", "Probe"]

PROBE_PERIOD_NS: Final = 250_000_000
SIZE: Final = 112


class Probe:
    """Times the product on the clock it is given."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._a = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
        self._out = np.zeros_like(self._a)
        self._next = 0
        self.sample()  # the first product pays for page faults and BLAS's own start

    def due(self, now_ns: int) -> bool:
        """Whether it is time for another sample."""
        return now_ns >= self._next

    def sample(self) -> int:
        """One sample, in nanoseconds."""
        start = self._clock()
        np.matmul(self._a, self._a, out=self._out)
        end = self._clock()
        self._next = end + PROBE_PERIOD_NS
        return end - start
