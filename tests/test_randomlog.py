"""The random logs hold what the partition is held against: each kind of trouble, in a good part of the logs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from randomlog import random_log
from slow import Slow
from slow_log import NEVER, Log, Segment
from test_partition import STAND_IN

LOGS, LEAST = 100, 3
PROMISED = {
    "device overlap": ("async", "everything"),
    "host work behind the device": ("async", "everything"),
    "device work of two steps at once": ("async", "everything"),
    "mixed": ("mixed", "everything"),
    "unscheduled": ("away", "everything"),
    "held": ("away", "everything"),
    "evicted": ("post", "away", "fold", "everything"),
    "several tokens": ("post", "serial", "mixed", "async", "away", "os", "edges", "fold", "everything"),
    "delay of a segment": ("os", "fold", "everything"),
    "delay of a step": ("os", "fold", "everything"),
    "delivered": ("edges", "everything"),
    "queue": ("edges", "everything"),
}
"""What must be in some of the logs of each of these kinds."""


def overlaps(windows: list[tuple[int, int, Any]]) -> bool:
    """Whether two windows of different owners have an instant in common."""
    return any(a1 > b0 and a != b for (_, a1, a), (b0, b1, b) in pairwise(sorted(windows)) if b1 > b0)


def found(log: Log, slow: Slow) -> Iterator[str]:
    steps = [(s.t0, s.t1, s.id) for s in log.steps.values()]
    device = [s for s in log.segments if s.device and s.t0 < s.t1]
    if device and overlaps(steps):
        yield "device overlap"
    if overlaps([(s.t0, s.t1, s.step) for s in device]):
        yield "device work of two steps at once"
    if any(h.t0 < d.t1 and d.t0 < h.t1 for d in device for h in log.segments if not h.device):
        yield "host work behind the device"
    if any(s.mixed and slow.work(s.id) for s in log.steps.values()):
        yield "mixed"
    causes = {cause for g in slow.gaps() for cause in g.parts}
    if "unscheduled" in causes:
        yield "unscheduled"
    if causes & {f"other:{kind}" for windows in log.held.values() for _, _, kind in windows}:
        yield "held"
    if any(a < b < NEVER for windows in log.evicted.values() for a, b in windows):
        yield "evicted"
    if any(n > 1 for emit in log.emits for n in emit.tokens.values()):
        yield "several tokens"
    if any(ns and log.steps[s.step].segments_have_delay for s, ns in slow.os.items()):
        yield "delay of a segment"
    if any(ns and not log.steps[s.step].segments_have_delay for s, ns in slow.os.items() if isinstance(s, Segment)):
        yield "delay of a step"
    if log.of["deliver"]:
        yield "delivered"
    if log.of["admit"]:
        yield "queue"


@pytest.mark.parametrize("kind", sorted({kind for kinds in PROMISED.values() for kind in kinds}))
def test_each_kind_holds_what_it_promises(kind: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(LOGS):
        log = Log(random_log(random.Random(f"{kind} {seed}"), kind))
        seen.update(set(found(log, Slow(log, "full", STAND_IN))))
    for what, kinds in PROMISED.items():
        if kind in kinds:
            assert seen[what] >= LEAST, (what, seen)
