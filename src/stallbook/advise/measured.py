"""What a run measured, in the figures that advice is made of: each is drawn up when it is asked for first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stallbook.advise.model import NOT_IN_LOG
from stallbook.baseline import BaselineFit
from stallbook.beyond import delivered, tally_waits
from stallbook.counters import Counters, count
from stallbook.errors import StallbookError
from stallbook.incidents import Incidents, find_incidents
from stallbook.partition import Partition
from stallbook.prompts import KINDS, prompts
from stallbook.run import NO_GRAPH, Ints
from stallbook.stalls import Stall, Stalls, find_stalls
from stallbook.tally import Mix, Tally, tally, weighed
from stallbook.waits import BLOCKERS, Waits, blocked_by, boundary_gaps

__all__ = ["Chunks", "Lengths", "Measured", "measure"]

POWERS = range(6, 18)
"""Token budgets that are suggested, as powers of two."""


@dataclass(frozen=True)
class Chunks:
    """Prompt tokens of the steps that had any. token_ms: what one took, over all; None where that is not known."""

    steps: int
    median: float
    most: int
    token_ms: float | None


@dataclass(frozen=True)
class Lengths:
    """How often something ran, and for how long."""

    count: int
    median_ms: float
    longest_ms: float
    total_ms: float


@dataclass(frozen=True)
class Measured:
    """One partition seen at one boundary. waits: its gaps where they are not the engine's."""

    p: Partition
    boundary: str
    waits: Waits | None
    table: Tally

    @property
    def config(self) -> Mapping[str, Any]:
        """The engine's settings, as far as the log holds them."""
        return self.p.run.config

    @property
    def fit(self) -> BaselineFit:
        """What a decode step should cost."""
        return self.p.baseline

    def setting(self, key: str) -> Any:
        """The present value of a setting."""
        return self.config.get(key, NOT_IN_LOG) if key else NOT_IN_LOG

    @cached_property
    def tail(self) -> Mix:
        """What the tail is made of."""
        return self.table.tail()

    @cached_property
    def counters(self) -> Counters:
        """The run's totals."""
        return count(self.p.run)

    @cached_property
    def incidents(self) -> Incidents:
        """Its single events."""
        return find_incidents(self.p)

    @cached_property
    def stalls(self) -> Stalls:
        """Its worst gaps."""
        return find_stalls(self.p, self.waits, self.boundary)

    def stalls_of(self, cause: str) -> list[Stall]:
        """The worst gaps that a cause is the primary one of."""
        return [s for s in (*self.stalls.worst, *self.stalls.of_causes) if s.primary == cause]

    @cached_property
    def blocked(self) -> dict[str, float] | None:
        """What kept the first in the queue out, in ms over all that waited; None where that is not recorded."""
        ns = blocked_by(self.p.run)
        return None if ns is None else {name: int(n) / 1e6 for name, n in zip(BLOCKERS, ns, strict=True)}

    @cached_property
    def prompts(self) -> dict[str, float] | None:
        """Whose prompts the prefill in the gaps was, in ms; None where no owner is on record."""
        if self.waits is not None or not (self.p.run.segments.request >= 0).any():
            return None
        of = prompts(self.p)
        return {kind: int(weighed(self.p.row_weight, of[:, k])) / 1e6 for k, kind in enumerate(KINDS)}

    @cached_property
    def chunks(self) -> Chunks | None:
        """The prompt tokens of steps, and what one took."""
        tokens = np.maximum(self.p.run.steps.prefill_tokens, 0)
        some = tokens[tokens > 0]
        if not len(some):
            return None
        inside = tokens.cumsum()[self.p.rhythm.step]
        total = int(inside[-1] - inside[0]) if len(inside) else 0
        ns = int(self.p.rows[: len(self.p.rhythm.emit), self.p.causes.index("prefill")].sum())
        each = ns / total / 1e6 if total > 0 and ns > 0 else None
        return Chunks(len(some), float(np.median(some)), int(some.max()), each)

    @property
    def largest_batch(self) -> int | None:
        """The most rows that a step decoded."""
        return self.counters.max_decode_batch

    @cached_property
    def wanted_budget(self) -> int | None:
        """The token budget, a power of two, with which a step's prompts take as long as the median gap."""
        chunks, p50 = self.chunks, self.table.lengths.percentile(50)
        if chunks is None or not chunks.token_ms or not p50 or not self.largest_batch:
            return None
        most = self.setting("max_num_seqs")
        rows = max(self.largest_batch, most if isinstance(most, int) else 0)
        wanted = np.log2(rows + p50 / 1e6 / chunks.token_ms)
        return 1 << min(max(round(float(wanted)), POWERS[0]), POWERS[-1])

    def segments(self, name: str) -> Lengths | None:
        """The engine's segments of one name."""
        run = self.p.run
        if name not in run.names:
            return None
        s = run.segments
        return _lengths((s.t1 - s.t0)[s.name == run.names.index(name)])

    def holds(self, kind: str) -> Lengths | None:
        """The holds of one kind that ended."""
        run = self.p.run
        if kind not in run.names:
            return None
        h = run.holds
        ended = (h.kind == run.names.index(kind)) & (h.t1 < self.p.run.steps.t1.max(initial=0))
        return _lengths((h.t1 - h.t0)[ended])

    @cached_property
    def padded(self) -> tuple[int, int]:
        """Rows that captured steps decoded, and padded rows beside them."""
        st = self.p.run.steps
        told = (st.graph != NO_GRAPH) & (st.padded >= 0) & (st.decode_tokens > 0)
        rows = int(st.decode_tokens[told].sum())
        return rows, int(st.padded[told].sum()) - rows


def _lengths(ns: Ints) -> Lengths | None:
    if not len(ns):
        return None
    return Lengths(len(ns), float(np.median(ns)) / 1e6, int(ns.max()) / 1e6, float(ns.sum(dtype=np.float64)) / 1e6)


def measure(p: Partition, boundary: str = "engine") -> Measured:
    """A partition's gaps at a boundary."""
    if boundary == "engine":
        return Measured(p, boundary, None, tally(p))
    if boundary not in delivered(p):
        remedy = "leave --boundary out, or name logs that have them"
        raise StallbookError("no-boundary", f"has no deliveries at the {boundary} (full rules)", remedy, p.run.path)
    waits = boundary_gaps(p, boundary)
    return Measured(p, boundary, waits, tally_waits(waits))
