"""The causes: what a nanosecond of a gap can be charged to, their order, and how `full` folds to `post`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["CLEAN", "EXPLAINED_BY_WORK", "MEANING", "ORDER", "OTHER", "POST", "fold", "ordered"]

POST: Final = ("prefill", "preempt", "graph", "gc", "tok", "fwd", "residual")
"""The seven causes of the post, in its order."""

ORDER: Final = (
    *POST, "os", "slow", "unscheduled", "pad", "sched", "sample", "output", "frontend", "network", "queue",
)  # fmt: skip
"""Every cause but `other:NAME`, in the order that breaks ties; `other:NAME` follows, by name."""

OTHER: Final = "other:"
"""Prefix of the cause of a named segment or hold that has no cause of its own."""

CLEAN: Final = "clean"
"""The primary cause of a gap in which no cause is large enough."""

EXPLAINED_BY_WORK: Final = frozenset({"fwd", "pad", "residual"})
"""Causes that are never a gap's primary cause."""

MEANING: Final = {
    "prefill": "prompt tokens computed before this token",
    "preempt": "the request was evicted, or someone's cache was swapped",
    "graph": "decode time above a captured step's cost: no graph fitted the batch",
    "gc": "a garbage collection stopped a process on the token's path",
    "tok": "a prompt was tokenized on the engine loop",
    "fwd": "the decode forward pass itself",
    "residual": "no record explains it",
    "os": "a thread was ready to run and the system did not run it",
    "slow": "a captured decode took at least twice its baseline",
    "unscheduled": "the request was alive and in no batch",
    "pad": "decode work on padded rows",
    "sched": "the engine's scheduler",
    "sample": "the sampler",
    "output": "the engine's output work",
    "frontend": "after emission: the frontend had the token",
    "network": "after the frontend: on its way to the client",
    "queue": "arrived, not yet admitted",
}
"""One clause a cause."""

_FOLD: Final = {"slow": "fwd", "pad": "fwd"}


def fold(cause: str) -> str | None:
    """The cause of `post` that `cause` of `full` was carved from.

    None where that depends on the segment (`os`) or where `post` has no counterpart.
    """
    return cause if cause in POST else _FOLD.get(cause)


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """`names` once each, in the order that breaks ties."""
    unique = set(names)
    return (*(c for c in ORDER if c in unique), *sorted(unique.difference(ORDER)))
