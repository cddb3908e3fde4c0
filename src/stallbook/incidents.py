"""Single events of a run, the longest first: collections, evictions, and what each size of decode batch took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stallbook.charges import kv_tokens
from stallbook.counters import origin_ns
from stallbook.partition import Partition
from stallbook.run import CAPTURED, EAGER, NEVER, NO_GRAPH, Ints, Run

__all__ = ["KEPT", "Collected", "Collection", "DecodePath", "DecodeSize", "Eviction", "Incidents", "find_incidents"]

KEPT: Final = 20
"""Events of a kind told one by one."""
SIZES: Final = 40
"""Sizes of decode batch told."""


@dataclass(frozen=True)
class Collection:
    """One garbage collection. generation: -1 where not known. start_s: since the run's first stamp."""

    start_s: float
    length_ms: float
    generation: int
    process: str


@dataclass(frozen=True)
class Collected:
    """All collections of one generation in one process."""

    process: str
    generation: int
    count: int
    total_ms: float
    longest_ms: float


@dataclass(frozen=True)
class Eviction:
    """One preemption. away_ms: until readmission, None where it never came back. kind: what became of its cache."""

    request: str
    start_s: float
    away_ms: float | None
    kind: str
    lost_tokens: int | None


@dataclass(frozen=True)
class DecodeSize:
    """Decode steps of one size and path. size: padded rows, or rows where none are padded.

    took_ms: the median of their decode time, without collections and measured run-queue delay. expected_ms: the median
    of their baseline at the rows that they had, padded ones apart; None where there is no baseline.
    """

    path: str
    size: int
    steps: int
    took_ms: float
    expected_ms: float | None


@dataclass(frozen=True)
class DecodePath:
    """All decode steps of one path. rows: their fewest and their most; ratio: the median of took to expected."""

    path: str
    steps: int
    rows: tuple[int, int]
    ratio: float | None
    took_ms: float


@dataclass(frozen=True)
class Incidents:
    """The longest events of each kind, and totals. None: not recorded."""

    collected: tuple[Collected, ...] | None
    collections: tuple[Collection, ...]
    evictions: tuple[Eviction, ...] | None
    evicted: int
    paths: tuple[DecodePath, ...]
    sizes: tuple[DecodeSize, ...]


def find_incidents(p: Partition) -> Incidents:
    """The events of a partition's run."""
    run = p.run
    gc = len(run.pauses.t0) > 0 or "gc" in run.records
    evicted = len(run.evictions.t0) > 0 or "evictions" in run.records
    return Incidents(
        _collected(run) if gc else None,
        _collections(run),
        _evictions(run) if evicted else None,
        len(run.evictions.t0),
        *_decodes(p),
    )


def _longest(length: Ints) -> list[int]:
    kept: list[int] = np.argsort(-length, kind="stable")[:KEPT].tolist()
    return kept


def _collections(run: Run) -> tuple[Collection, ...]:
    p, origin = run.pauses, origin_ns(run)
    length = p.t1 - p.t0
    return tuple(
        Collection(int(p.t0[i] - origin) / 1e9, int(length[i]) / 1e6, int(p.generation[i]), run.names[p.process[i]])
        for i in _longest(length)
    )


def _collected(run: Run) -> tuple[Collected, ...]:
    p = run.pauses
    length = p.t1 - p.t0
    out = []
    for process, generation in sorted({*zip(p.process.tolist(), p.generation.tolist(), strict=True)}):
        mine = length[(p.process == process) & (p.generation == generation)]
        total, longest = float(mine.sum(dtype=np.float64)) / 1e6, int(mine.max()) / 1e6
        out.append(Collected(run.names[process], generation, len(mine), total, longest))
    return tuple(out)


def _evictions(run: Run) -> tuple[Eviction, ...]:
    e, origin = run.evictions, origin_ns(run)
    away = np.where(e.t1 >= NEVER, NEVER, e.t1 - e.t0)
    return tuple(
        Eviction(
            run.requests.names[e.request[i]],
            int(e.t0[i] - origin) / 1e9,
            int(away[i]) / 1e6 if away[i] < NEVER else None,
            {0: "swapped out", 1: "dropped, computed again"}.get(int(e.recompute[i]), "not recorded"),
            int(e.lost_tokens[i]) if e.lost_tokens[i] >= 0 else None,
        )
        for i in _longest(away)
    )


def _decodes(p: Partition) -> tuple[tuple[DecodePath, ...], tuple[DecodeSize, ...]]:
    """What decode steps took, by path, and by path and size."""
    st, m, fit = p.run.steps, p.ledger.charges.m, p.baseline
    step = np.flatnonzero((st.decode_tokens > 0) & (m > 0))
    rows, graph, took = st.decode_tokens[step], st.graph[step], m[step]
    expected = fit.at(rows, kv_tokens(p.run)[step]) if fit.method != "none" else np.full(len(step), -1)
    size = np.where((graph == CAPTURED) & (st.padded[step] >= 0), st.padded[step], rows)
    paths = []
    for code in np.unique(graph).tolist():
        mine = graph == code
        known = mine & (expected > 0)
        ratio = float(np.median(took[known] / expected[known])) if known.any() else None
        span, total = (int(rows[mine].min()), int(rows[mine].max())), float(took[mine].sum()) / 1e6
        paths.append(DecodePath(_PATH[code], int(mine.sum()), span, ratio, total))
    key = size * len(_PATH) + graph
    found, count = np.unique(key, return_counts=True)
    sizes = []
    for one in found[np.argsort(-count, kind="stable")[:SIZES]].tolist():
        mine = key == one
        known = mine & (expected >= 0)
        should = float(np.median(expected[known])) / 1e6 if known.any() else None
        path = _PATH[one % len(_PATH)]
        sizes.append(DecodeSize(path, one // len(_PATH), int(mine.sum()), float(np.median(took[mine])) / 1e6, should))
    return tuple(paths), tuple(sorted(sizes, key=lambda s: (s.path, s.size)))


_PATH: Final = {NO_GRAPH: "no graph", CAPTURED: "captured", EAGER: "eager"}
