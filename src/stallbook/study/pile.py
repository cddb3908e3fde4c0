"""The sixth pile: decode steps that ran far above their usual time, and what the partition charges the excess to.

**Excess.** A captured decode step took H: the time of its decode segments, collections removed. B is what a step of its
padded size and KV tokens takes uncontended: a robust fit to steps that ran beside no neighbour and in which no thread
waited for a core. Its excess is H - B where that is positive. `os` holds of it what the partition charged to `os`
inside these segments, at most the excess; `slow` what it charged to `slow`; the rest is in `fwd` and `pad`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.baseline import fit_robust
from stallbook.charges import SPLIT
from stallbook.errors import StallbookError
from stallbook.intervals import sums
from stallbook.partition import Partition
from stallbook.run import CAPTURED, ExplicitBaseline, Ints
from stallbook.tally import Distribution

__all__ = [
    "FAR", "Charged", "DecodeSteps", "Pile", "Span", "charged", "clear", "decode_steps", "gaps_of", "inside",
    "pile", "spans_of", "uncontended",
]  # fmt: skip

FAR: Final = 5
"""So many times its baseline a step of the sixth pile takes, or more."""
APART_NS: Final = 100_000_000
"""A neighbour that had no core for longer than this was asleep: two spans."""
AFTER_NS: Final = 20_000_000
"""A step that began so shortly after a neighbour fell asleep is not judged to be free of it."""
_LEAST: Final = 20
"""Of fewer steps in which no thread waited there is no baseline: all count, and the fit leaves out what is far off."""

Bools = npt.NDArray[np.bool_]
Span = tuple[int, int]


@dataclass(frozen=True)
class DecodeSteps:
    """A row a captured step that decoded. host, os, slow, usual: ns; usual is the baseline B, -1 where there is none.

    rows: the padded size. gaps: rows that decoded, each of which ends a gap but for first tokens.
    """

    t0: Ints
    t1: Ints
    rows: Ints
    kv: Ints
    gaps: Ints
    host: Ints
    os: Ints
    slow: Ints
    usual: Ints

    def where(self, keep: Bools) -> DecodeSteps:
        """Some of the steps."""
        return DecodeSteps(*(getattr(self, field.name)[keep] for field in fields(self)))


def decode_steps(p: Partition) -> DecodeSteps:
    """The captured decode steps of a run, and what its partition charged inside them."""
    st, s, c = p.run.steps, p.run.segments, p.ledger.charges
    decode = c.decode > 0
    os = sums(s.step[decode], c.os[decode], len(st.id))
    usual = p.baseline.at(st.padded, st.kv_tokens)
    every = DecodeSteps(
        st.t0, st.t1, st.padded, st.kv_tokens, st.decode_tokens, c.m + os, os, c.split[SPLIT.index("slow")], usual
    )
    return every.where((st.graph == CAPTURED) & (st.decode_tokens > 0) & (every.host > 0))


def spans_of(slices: Sequence[Span]) -> list[Span]:
    """When a neighbour was awake, from the slices of time in which it had a core."""
    spans: list[Span] = []
    for t0, t1 in sorted(slices):
        if spans and t0 - spans[-1][1] < APART_NS:
            spans[-1] = spans[-1][0], max(t1, spans[-1][1])
        else:
            spans.append((t0, t1))
    return spans


def inside(steps: DecodeSteps, spans: Sequence[Span]) -> Bools:
    """Steps that lie in one span as a whole."""
    found = np.zeros(len(steps.t0), bool)
    for t0, t1 in spans:
        found |= (steps.t0 >= t0) & (steps.t1 <= t1)
    return found


def clear(steps: DecodeSteps, spans: Sequence[Span]) -> Bools:
    """Steps that no span touches, nor ended just before."""
    touched = np.zeros(len(steps.t0), bool)
    for t0, t1 in spans:
        touched |= (steps.t1 > t0) & (steps.t0 < t1 + AFTER_NS)
    return ~touched


def uncontended(steps: DecodeSteps) -> ExplicitBaseline:
    """What these steps take where no thread waits for a core: the robust fit of the full rules."""
    calm = steps.os == 0
    if calm.sum() < _LEAST:
        calm |= True
    fit = fit_robust(steps.rows[calm], steps.kv[calm], steps.host[calm])
    if fit.method == "none":
        raise StallbookError("no-calm-steps", "no decode step ran beside no neighbour", "run it for longer")
    return ExplicitBaseline(fit.fixed_ns, fit.row_ns, fit.kv_token_ns)


@dataclass(frozen=True)
class Pile:
    """Sums over steps, in ns, and counts. `far`: of the steps that took `FAR` times their baseline or more."""

    steps: int = 0
    host_ns: int = 0
    usual_ns: int = 0
    """Their baselines."""
    excess_ns: int = 0
    os_ns: int = 0
    """Of the excess."""
    slow_ns: int = 0
    """Of the excess."""
    charged_os_ns: int = 0
    """All `os` inside these steps' decode segments, whether above the baseline or not."""
    far_steps: int = 0
    far_gaps: int = 0
    far_host_ns: int = 0
    far_excess_ns: int = 0
    far_os_ns: int = 0

    def __add__(self, other: Pile) -> Pile:
        return Pile(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def rest_ns(self) -> int:
        """What is neither: `fwd` and `pad` above the baseline."""
        return self.excess_ns - self.os_ns - self.slow_ns

    @property
    def scatter(self) -> float | None:
        """The excess as a fraction of the baselines: how far steps that nothing hindered scatter above them."""
        return self.excess_ns / self.usual_ns if self.usual_ns else None

    def beyond(self, scatter: float) -> float | None:
        """The share of `os` in what is left of the excess when steps that nothing hindered scatter so far."""
        left = self.excess_ns - scatter * self.usual_ns
        return self.os_ns / left if left > 0 else None

    @property
    def os_share(self) -> float | None:
        """Of the excess; None where there is none."""
        return self.os_ns / self.excess_ns if self.excess_ns else None

    @property
    def far_share(self) -> float | None:
        """Of the far steps' excess."""
        return self.far_os_ns / self.far_excess_ns if self.far_excess_ns else None


def pile(steps: DecodeSteps) -> Pile:
    """Add up the excess of steps whose baseline is known, and who is charged for it."""
    steps = steps.where(steps.usual > 0)
    excess = np.maximum(steps.host - steps.usual, 0)
    os = np.minimum(steps.os, excess)
    slow = np.minimum(steps.slow, excess - os)
    far = steps.host >= FAR * steps.usual
    of_far = [x[far] for x in (steps.gaps, steps.host, excess, os)]
    parts = [np.ones_like(far), steps.host, steps.usual, excess, os, slow, steps.os, far, *of_far]
    return Pile(*(int(part.sum()) for part in parts))


@dataclass(frozen=True)
class Charged:
    """Time of all gaps, and what of it two causes hold, ns."""

    gaps_ns: int = 0
    os_ns: int = 0
    slow_ns: int = 0

    def __add__(self, other: Charged) -> Charged:
        return Charged(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def share(self) -> float | None:
        """What both hold together; None where there is no gap."""
        return (self.os_ns + self.slow_ns) / self.gaps_ns if self.gaps_ns else None


def charged(p: Partition) -> Charged:
    """What `os` and `slow` hold of a run's gap time."""
    total = p.row_weight @ p.rows
    part = {cause: int(total[k]) for k, cause in enumerate(p.causes)}
    return Charged(int(total.sum()), part.get("os", 0), part.get("slow", 0))


def gaps_of(p: Partition) -> Distribution:
    """The lengths of all gaps, ns."""
    return Distribution.of(p.row_gap, p.row_weight)
