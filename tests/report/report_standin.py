"""A partition made by hand, so that reports are tested on figures that a reader can check by head."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from stallbook.abilities import Rough
from stallbook.causes import POST
from stallbook.run import (
    CAPTURED,
    UNKNOWN,
    Deliveries,
    Emissions,
    Evictions,
    Holds,
    Ints,
    Members,
    Pauses,
    Probes,
    Requests,
    Run,
    Segments,
    Steps,
)
from stallbook.stalls import Stall, Stalls
from stallbook.waits import Waits

MS = 1_000_000


def ints(*values: float) -> Ints:
    return np.array(values, np.int64)


@dataclass
class Fit:
    method: str = "least squares"
    fixed_ns: float = 800_000.0
    row_ns: float = 240_000.0
    kv_token_ns: float = 0.0
    steps_used: int = 1234
    spread: float = 0.04
    note: str = ""
    best: float = 0.9


@dataclass
class Rows:
    """Gaps as (length ms, how many, {cause: ms}); the rest of a gap is fwd. Primary by the usual rule."""

    rows: list[tuple[float, int, dict[str, float]]]
    causes: tuple[str, ...] = POST
    context: dict[str, float] = field(default_factory=dict)

    def tables(self) -> dict[str, Any]:
        n, c = len(self.rows), len(self.causes)
        gap, weight = (np.array([row[i] for row in self.rows]) for i in (0, 1)) if n else (ints(), ints())
        gap = np.rint(gap * MS).astype(np.int64)
        parts = np.zeros((n, c), np.int64)
        for i, (_, _, told) in enumerate(self.rows):
            for cause, ms in told.items():
                parts[i, self.causes.index(cause)] = round(ms * MS)
            parts[i, self.causes.index("fwd")] += gap[i] - parts[i].sum()
        context = np.zeros((n, c), np.int64)
        for cause, ms in self.context.items():
            context[0, self.causes.index(cause)] = round(ms * MS)
        return {
            "rows": parts, "context": context, "row_gap": gap, "row_weight": weight.astype(np.int64),
            "row_primary": self.primary(parts, gap), "causes": self.causes,
        }  # fmt: skip

    def primary(self, parts: Ints, gap: Ints) -> Ints:
        if not len(parts):
            return ints()
        hidden = [self.causes.index(c) for c in ("fwd", "residual", "pad") if c in self.causes]
        told = parts.copy()
        told[:, hidden] = -1
        best = told.argmax(1)
        most = told[np.arange(len(told)), best]
        return np.where((most >= MS) & (most * 4 >= gap), best, -1)


def stalls(*worst: Stall, count: int = 0) -> Stalls:
    return Stalls(140 * MS, count, 2_500 * MS, 0.042, 2_400 * MS, 14.0 * MS, worst)


def waits(causes: tuple[str, ...], *parts: tuple[float, ...], never_admitted: int = 0) -> Waits:
    """Waits of requests 0, 1, ... from 0 on; their parts in ms, a tuple a wait."""
    table = np.rint(np.array(parts, float).reshape(-1, len(causes)) * MS).astype(np.int64)
    n = len(table)
    none, ends = np.zeros(n, np.int64), table.sum(axis=1)
    return Waits(causes, np.arange(n), none, ends, table, table * 0, none - 1, none + 1, never_admitted, 0)


def partition(rows: Rows, run: Run | None = None, **changes: Any) -> Any:
    """`stalls` and `waits`: what is found in place of what a partition holds; see conftest."""
    known = dict.fromkeys(rows.causes, "placed")
    base = {
        "run": run or a_run(), "rules": "post", **rows.tables(),
        "reconcile": SimpleNamespace(max_error_ns=0, negative_parts=0, skipped_steps_unexplained=0, gaps_skipping=0),
        "baseline": Fit(), "abilities": known, "rough": Rough({}, {}, 0), "notes": {},
        "stalls": stalls(), "waits": waits(("fwd",)),
    }  # fmt: skip
    return SimpleNamespace(**{**base, **changes})


def a_run(**changes: Any) -> Run:
    """Two requests that arrive at 0 and emit first at 10 and 20 ms; three collections; a machine that drifts."""
    none = ints()
    t = np.arange(1, 5, dtype=np.int64) * 10 * MS
    run: dict[str, Any] = {
        "requests": Requests(
            ("r1", "r2", "r3"), ints(0, 0, 0), ints(1, 1, UNKNOWN), ints(*[UNKNOWN] * 3), *[ints(-1, -1, -1)] * 2
        ),
        "steps": Steps(
            ints(0, 1, 2, 3), t - 9 * MS, t + MS // 2, t, ints(CAPTURED, CAPTURED, 2, 2), ints(1, 2, -1, -1),
            ints(1, 2, 33, 40), ints(0, 0, 0, 0), *[ints(-1, -1, -1, -1)] * 4,
        ),
        "segments": Segments(*[none] * 7),
        "pauses": Pauses(
            ints(-200 * MS, 31 * MS, 32 * MS), ints(-88 * MS, 31 * MS + 90_000, 34 * MS), ints(2, 0, 2), ints(0, 0, 0)
        ),
        "emissions": Emissions(ints(0, 0, 1, 1), ints(0, 1, 1, 2), ints(1, 1, 1, 1)),
        "evictions": Evictions(*[none] * 5),
        "holds": Holds(*[none] * 4),
        "deliveries": Deliveries(*[none] * 4),
        "members": Members(ints(0, 0, 0, 0), ints(0, 0, 0, 0, 0), none),
        "probes": Probes(np.arange(30, dtype=np.int64) * MS, np.where(np.arange(30) < 20, 50_000, 57_000)),
        "names": ("engine",), "engine": "demo 1", "path": "runs/demo-1.stall",
        "records": frozenset({"gc", "graph", "evictions"}),
        "wall_ns": 2_000 * MS,
        "facts": {"closed": {"self_ns": 4 * MS, "dropped": 0, "errors": 0}}, "config": {"seed": 1},
    }  # fmt: skip
    return Run(**{**run, **changes})


BASELINE_RUN = Rows(
    [
        (4.0, 13_760, {"residual": 0.05}),
        (8.0, 17_747, {"gc": 0.09}),
        (13.7, 37_670, {"residual": 0.1}),
        (17.0, 36_000, {"prefill": 0.4, "residual": 0.1}),
        (19.0, 900, {"prefill": 9.0}),
        (24.0, 6_000, {"residual": 0.3}),
        (25.0, 1_500, {"graph": 9.0}),
        (28.0, 1_600, {"prefill": 16.0}),
        (31.0, 1_000, {"prefill": 22.0, "residual": 0.2}),
        (60.0, 80, {"prefill": 44.0, "graph": 2.0}),
        (180.0, 20, {"tok": 160.0}),
        (260.0, 40, {"gc": 190.0, "prefill": 30.0}),
        (900.0, 58, {"preempt": 860.0}),
        (2_400.0, 11, {"preempt": 2_380.0, "residual": 0.004}),
    ],
    context={"fwd": 60_000.0, "prefill": 12_000.0, "gc": 400.0, "residual": 300.0},
)
