"""`Run`: the immutable tables of one recording. Everything after the log reads these and nothing else.

Each table is a struct of equally long arrays, a row an index. Times are int64 nanoseconds of one
monotonic clock. Requests and steps are referred to by their row (an index into `Run.requests` or
`Run.steps`), names by their index into `Run.names`. What a log did not record is `UNKNOWN` (a time)
or -1 (a count, an amount, an index); it is never 0.

A `Run` is canonical: steps are ordered by id, emissions by (request, step), the rest by start; overlapping
pauses, evictions and holds are merged and counted in `notes`; contradictions were refused by `stallbook.log`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "BY_BUDGET", "BY_KV", "BY_SEQS", "CAPTURED", "EAGER", "NEVER", "NOT_BLOCKED", "NO_GRAPH", "UNKNOWN", "Deliveries",
    "Emissions", "Evictions", "ExplicitBaseline", "Holds", "Ints", "Members", "Pauses", "Probes", "Requests", "Run",
    "Segments", "Steps",
]  # fmt: skip

Ints = npt.NDArray[np.int64]

UNKNOWN: Final = -(2**63)
"""A time that was not recorded."""
NEVER: Final = 2**62
"""The end of an eviction or a hold that did not end: later than any stamp, and safe to subtract from."""

NO_GRAPH, CAPTURED, EAGER = 0, 1, 2
"""`Steps.graph`: no captured path exists (or none was named); ran captured; ran eagerly above it."""


NOT_BLOCKED, BY_KV, BY_SEQS, BY_BUDGET = 0, 1, 2, 3
"""`Steps.blocked`: nothing waited, or all that did was admitted; KV blocks; the limit of sequences; that of tokens."""


@dataclass(frozen=True)
class Requests:
    """A row a request. `names[i]` is its id as the engine wrote it."""

    names: tuple[str, ...]
    arrive: Ints
    admit: Ints
    """First admission."""
    finish: Ints
    prompt_tokens: Ints
    max_tokens: Ints


@dataclass(frozen=True)
class Steps:
    """A row a step, ordered by `id`. `emit` is the stamp of its emissions, UNKNOWN if it emitted nothing."""

    id: Ints
    t0: Ints
    t1: Ints
    emit: Ints
    graph: Ints
    padded: Ints
    decode_tokens: Ints
    prefill_tokens: Ints
    kv_tokens: Ints
    run_delay: Ints
    """Run-queue delay known only for the whole step, in ns; -1 where not recorded."""
    cpu: Ints
    blocked: Ints
    """What kept the first waiting request out of this step: see above; -1 where not recorded."""


@dataclass(frozen=True)
class Segments:
    """A row a window inside a step. `device` is 1 on the device lane; `request` owns it, or -1."""

    step: Ints
    name: Ints
    device: Ints
    t0: Ints
    t1: Ints
    run_delay: Ints
    request: Ints


@dataclass(frozen=True)
class Pauses:
    """A row a garbage collection; `process` and `name` indices are into `Run.names`."""

    t0: Ints
    t1: Ints
    generation: Ints
    process: Ints


@dataclass(frozen=True)
class Emissions:
    """A row a delivery of `tokens` >= 1 tokens of one request, ordered by (request, step)."""

    request: Ints
    step: Ints
    tokens: Ints


@dataclass(frozen=True)
class Evictions:
    """A row an eviction, ordered by (request, t0), disjoint within a request. `t1` is NEVER if it never ended."""

    request: Ints
    t0: Ints
    t1: Ints
    recompute: Ints
    """1: the cache was dropped; 0: swapped out; -1: not recorded."""
    lost_tokens: Ints


@dataclass(frozen=True)
class Holds:
    """A row a window in which a live request cannot be scheduled, merged per (request, kind)."""

    request: Ints
    kind: Ints
    t0: Ints
    t1: Ints


@dataclass(frozen=True)
class Deliveries:
    """A row a delivery after emission. `boundary`: 0 frontend, 1 client. Ordered by (request, boundary, t)."""

    request: Ints
    t: Ints
    tokens: Ints
    boundary: Ints


@dataclass(frozen=True)
class Members:
    """The batch of each step: requests `request[start[i]:start[i + 1]]` for step row i, ascending.

    `known[i]` is 0 where the log does not say who was in the batch: such a step is not judged."""

    known: Ints
    start: Ints
    request: Ints


@dataclass(frozen=True)
class Probes:
    """A row a sample of the machine's speed: a fixed small product took `ns` at time `t`."""

    t: Ints
    ns: Ints


@dataclass(frozen=True)
class ExplicitBaseline:
    """What a decode step should cost: `fixed_ns + row_ns * rows + kv_token_ns * kv_tokens`."""

    fixed_ns: float
    row_ns: float
    kv_token_ns: float


@dataclass(frozen=True)
class Run:
    """One recording. `records` is what the log claims to be able to record; `notes` counts what was repaired."""

    requests: Requests
    steps: Steps
    segments: Segments
    pauses: Pauses
    emissions: Emissions
    evictions: Evictions
    holds: Holds
    deliveries: Deliveries
    members: Members
    probes: Probes
    names: tuple[str, ...]
    engine: str = ""
    boundary: str = "engine"
    records: frozenset[str] = frozenset()
    config: Mapping[str, Any] = field(default_factory=dict)
    baseline: ExplicitBaseline | None = None
    path: str = ""
    wall_ns: int = -1
    """Length of the recording; -1 derives it from the first and last stamp."""
    preemptions: int = -1
    """Times a running request lost its KV as the engine counted them; -1: count the evictions."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counts of what was merged, dropped or skipped on the way in, by slug."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the recording itself: format, platform, the recorder's own cost, drops."""

    def __repr__(self) -> str:
        """In one line: a run is too large to print."""
        from stallbook.faces import run_line  # a view for the caller's convenience, as all below

        return run_line(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from stallbook.faces import run_html

        return run_html(self)

    def to_arrow(self, table: str = "steps") -> Any:
        """One of the run's tables as a `pyarrow.Table`: `stallbook.tables.TABLES` names them."""
        from stallbook.tables import run_table

        return run_table(self, table)

    def to_pandas(self, table: str = "steps") -> Any:
        """The same as a pandas DataFrame."""
        from stallbook.tables import to_pandas

        return to_pandas(self.to_arrow(table))

    def to_polars(self, table: str = "steps") -> Any:
        """The same as a Polars DataFrame."""
        from stallbook.tables import to_polars

        return to_polars(self.to_arrow(table))
