"""What a neighbour does to a baseline: the post's least squares and the robust fit on one log, against the truth.

The truth is the fit to those steps of the same run that the neighbour left alone. Time is the engine's, a step counted
once: what each pair of rules and baseline charges to `graph`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallbook.charges import SPLIT
from stallbook.partition import Partition, partition
from stallbook.run import CAPTURED, EAGER, Ints, Run
from stallbook.study.pile import Span, clear, decode_steps, uncontended

__all__ = ["Bent", "Fitted", "compare"]

_GRAPH = SPLIT.index("graph")


@dataclass(frozen=True)
class Fitted:
    """One baseline, and what it gives. at_ns: B at each of the sizes of `Bent`; graph_ns: of all steps."""

    name: str
    method: str
    fixed_ns: float
    row_ns: float
    kv_token_ns: float
    at_ns: tuple[int, ...]
    graph_ns: int
    wrong_ns: int
    """Time charged to `graph` that is not its, and the other way round: |difference| to the truth, step by step."""


@dataclass(frozen=True)
class Bent:
    """Baselines on one log, compared at `kv_per_row` KV tokens a row. eager_ns: decode time of the eager steps."""

    sizes: tuple[int, ...]
    kv_per_row: int
    eager_steps: int
    eager_ns: int
    os_ns: int
    """Run-queue delay in decode segments, which rules that do not know it charge to `fwd` and `graph`."""
    fits: tuple[Fitted, ...]


def compare(run: Run, neighbour: Sequence[Span]) -> Bent:
    """Partition a run four ways: by the post's rules and the full ones, each by its own baseline and by the truth."""
    full = partition(run, "full")
    steps = decode_steps(full)
    truth = uncontended(steps.where(clear(steps, neighbour)))
    ways = {
        "truth, full": partition(run, "full", truth), "full": full,
        "post": partition(run, "post"), "post, the true baseline": partition(run, "post", truth),
    }  # fmt: skip
    st, c = run.steps, full.ledger.charges
    used = (st.graph == CAPTURED) & (st.decode_tokens > 0)
    sizes = tuple(int(n) for n in np.unique(st.padded[used]))
    kv_per_row = int(np.median(st.kv_tokens[used] / st.decode_tokens[used]))
    eager = st.graph == EAGER
    os = np.bincount(run.segments.step, weights=c.os * (c.decode > 0), minlength=len(st.id))
    right = _graph(ways["truth, full"])
    fits = tuple(_fitted(name, p, sizes, kv_per_row, right) for name, p in ways.items())
    host = c.m + os.astype(np.int64)
    return Bent(sizes, kv_per_row, int(eager.sum()), int(host[eager].sum()), int(os.sum()), fits)


def _graph(p: Partition) -> Ints:
    graph: Ints = p.ledger.charges.split[_GRAPH]
    return graph


def _fitted(name: str, p: Partition, sizes: Sequence[int], kv_per_row: int, right: Ints) -> Fitted:
    b = p.baseline
    rows = np.array(sizes, np.int64)
    at = tuple(int(ns) for ns in b.at(rows, rows * kv_per_row))
    graph = _graph(p)
    return Fitted(
        name, b.method, b.fixed_ns, b.row_ns, b.kv_token_ns, at, int(graph.sum()), int(np.abs(graph - right).sum())
    )
