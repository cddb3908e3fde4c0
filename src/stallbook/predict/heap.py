"""CPython's collector by its counters: when it runs, what it walks, and how its numbers are read off a log.

The rules are those of the generational collector of CPython up to 3.13. An allocation counts; past 700 the youngest
generation is collected, past ten of these the next one, and past ten of those all of it, but only if what joined the
oldest since the last full collection is over a quarter of what that one walked. Young collections cost the same every
time. A full one costs in proportion to the objects alive, which is why a frozen heap helps.

The log has each collection with its generation, and each step's tokens. From these come the objects that a token and
a step leave behind; from the distance of full collections, how large the heap is that they walk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stallbook.predict.observed import Floats, Observed
from stallbook.run import UNKNOWN, Ints

__all__ = ["Collector", "HeapFit", "fit_heap"]

THRESHOLDS: Final = (700, 10, 10)
QUARTER: Final = 4
OBJECTS_A_TOKEN: Final = 7.0
"""What the demonstrator's history of objects leaves behind per token; its compact history leaves nothing."""
LATE: Final = 0.5 * (THRESHOLDS[1] + 2) * (THRESHOLDS[0] + 1)
"""By so many objects a full collection is late on average: what joins the oldest joins by the middle generation."""
LEAST: Final = 8
"""Fewer collections than this tell nothing of what set them off."""


@dataclass(frozen=True)
class HeapFit:
    """What was found of a run's heap. Objects are those that the collector counts.

    live: alive at the start of serving. first: what may join the oldest generation before its first full collection.
    young_ns, middle_ns: a collection of the youngest, of the middle generation. object_ns: a full one, an object.
    full: how many full collections it was read from; with fewer than two, `live` is what a server of this size has.
    """

    token_objects: float
    step_objects: float
    live: float
    first: float
    young_ns: float
    middle_ns: float
    object_ns: float
    collections: int
    full: int
    misfit: float = 0.0
    """By how much the collections that the counters give are off the ones in the log, as a fraction of these."""
    offsets: tuple[int, int] = (0, 0)
    """Collections of the youngest and of the middle generation that had been counted when serving began."""

    def frozen(self) -> HeapFit:
        """The same after a full collection and a freeze at the start: what lives then is never walked again."""
        return replace(self, first=self.live / QUARTER, live=0.0, offsets=(0, 0))

    def compact(self) -> HeapFit:
        """The same with tokens kept in flat arrays."""
        return replace(self, token_objects=max(0.0, self.token_objects - OBJECTS_A_TOKEN))


class Collector:
    """The counters of one process: a `Heap`."""

    def __init__(self, fit: HeapFit) -> None:
        self.fit = fit
        self.young = 0.0
        self.counts = list(fit.offsets)
        self.pending = 0.0
        self.limit = fit.first
        self.live = fit.live
        self.since = 0.0
        """Objects since the last collection of the middle generation or above: what it moves on."""

    def allocate(self, tokens: int) -> tuple[int, float] | None:
        """See `stallbook.predict.ports.Heap`."""
        fit = self.fit
        new = fit.token_objects * tokens + fit.step_objects
        self.young += new
        self.since += new
        self.live += new
        if self.young <= THRESHOLDS[0]:
            return None
        self.young -= THRESHOLDS[0] + 1  # it ran in the middle of the step: what came after counts for the next
        return self._collect()

    def _collect(self) -> tuple[int, float]:
        fit = self.fit
        if self.counts[1] > THRESHOLDS[2] and self.pending > self.limit:
            self.counts = [0, 0]
            self.limit, self.pending, self.since = self.live / QUARTER, 0.0, 0.0
            return 2, fit.object_ns * self.live
        if self.counts[0] > THRESHOLDS[1]:
            self.counts = [0, self.counts[1] + 1]
            self.pending, self.since = self.pending + self.since, 0.0
            return 1, fit.middle_ns
        self.counts[0] += 1
        return 0, fit.young_ns


def fit_heap(seen: Observed, speed: Floats, heap_objects: float, *, frozen: bool) -> HeapFit | None:
    """Read a heap off a log. speed: at each pause, as a factor. heap_objects: what a server of this kind starts with.

    None where the log has no collections to learn from.
    """
    run = seen.run
    p = run.pauses
    emit = np.where(run.steps.emit == UNKNOWN, run.steps.t1, run.steps.emit)
    serving = p.t0 >= (run.steps.t0[0] if len(run.steps.t0) else 0)
    if int(serving.sum()) < LEAST:
        return None
    t0, generation = p.t0[serving], p.generation[serving]
    ns = (p.t1 - p.t0)[serving] / speed[serving]
    steps = np.searchsorted(emit, t0, side="right")
    tokens = np.concatenate([[0], np.cumsum(run.steps.decode_tokens)])[steps]
    token_objects, step_objects = _objects(np.diff(tokens), np.diff(steps))
    made = token_objects * tokens + step_objects * steps
    first, live = _heap(made[generation == 2], heap_objects, float(made[-1]), frozen=frozen)
    full = generation == 2
    walked = np.maximum((0.0 if frozen else live) + made[full], 1.0)
    per_object = float(np.median(ns[full] / walked)) if full.any() else 60.0
    young, middle = (float(np.median(ns[generation == g])) if (generation == g).any() else 0.0 for g in (0, 1))
    return HeapFit(
        token_objects, step_objects, live, first, young, middle, per_object, len(t0), int(full.sum()),
        offsets=_offsets(generation),
    )  # fmt: skip


def _objects(tokens: Ints, steps: Ints) -> tuple[float, float]:
    """Objects a token and a step, from what happened between two collections: each stands for the threshold."""
    every = np.arange(0, len(tokens), 4)  # several intervals at once: the step in which one falls is only half known
    design = np.stack([np.add.reduceat(tokens, every), np.add.reduceat(steps, every)], axis=1).astype(np.float64)[:-1]
    wanted = np.full(len(design), 4.0 * (THRESHOLDS[0] + 1))
    if len(design) < 3:
        total = float(tokens.sum())
        return (len(tokens) * (THRESHOLDS[0] + 1) / total if total else 0.0), 0.0
    (a, b), *_ = np.linalg.lstsq(design, wanted, rcond=None)
    if a < 0 or b < 0:
        column = 0 if b < 0 else 1
        one = float(design[:, column] @ wanted / (design[:, column] @ design[:, column]))
        return (one, 0.0) if column == 0 else (0.0, one)
    return float(a), float(b)


def _heap(full: Floats, prior: float, made: float, *, frozen: bool) -> tuple[float, float]:
    """What may join before the first full collection, and what is alive at the start.

    full: objects made before each full collection. Two of them say what the first one walked: four times as much as
    was made between them.
    """
    if len(full) >= 2:
        walked = QUARTER * max(float(full[1] - full[0]) - LATE, 0.0)
        live = max(walked - float(full[0]), 0.0)
        return float(full[0]) * 0.999, QUARTER * float(full[0]) if frozen else live
    if len(full) == 1:
        return float(full[0]) * 0.999, QUARTER * float(full[0]) if frozen else prior
    return max(prior / QUARTER, made), prior


def _offsets(generation: Ints) -> tuple[int, int]:
    """How far the counters had come when serving began, from the first collections of each kind."""
    older = np.flatnonzero(generation >= 1)
    if not len(older):
        return 0, 0
    return max(0, THRESHOLDS[1] + 1 - int(older[0])), 0
