"""Folded, `full` is `post`: on logs with nothing that the post does not know but run-queue delay, nothing else moves.

`slow` and `pad` fold to `fwd` by name. `os` folds to the segment that it was carved from, which its name does not
tell: the slow partition does. What stays apart is the split of a decode between `graph` and `fwd`.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import stallbook as sb
from randomlog import random_log
from slow import OWN_NAMES, Parts, Slow
from slow_log import Log, Segment
from stallbook.causes import fold
from stallbook.run import ExplicitBaseline
from test_partition import BATCH, SEEDS, STAND_IN, Key, fast_gaps, key_of, opened

KIND = "fold"
DECODE = "decode"
"""`graph` and `fwd` together."""


class Folding(Slow):
    """Charges run-queue delay to `os LABEL`: the label of the segment that it was carved from."""

    def charge_piece(self, unit: Any, windows: Iterable[int], parts: Parts) -> None:
        mine: Parts = defaultdict(int)
        super().charge_piece(unit, windows, mine)
        label = OWN_NAMES[unit.name] if isinstance(unit, Segment) else DECODE
        for cause, ns in mine.items():
            parts[f"os {label}" if cause == "os" else cause] += ns


def folded(parts: Parts) -> Parts:
    """Every cause but `os` by its counterpart under `post`, `graph` and `fwd` as one."""
    out: Parts = defaultdict(int)
    for cause, ns in parts.items():
        if cause.startswith("os "):
            out[cause.removeprefix("os ")] += ns
        elif cause != "os":
            label = fold(cause)
            assert label is not None, cause
            out[DECODE if label in ("graph", "fwd") else label] += ns
    return {label: ns for label, ns in out.items() if ns}


def logs(batch: int) -> Iterable[tuple[int, list[dict[str, Any]]]]:
    for seed in range(batch, min(batch + BATCH, SEEDS)):
        yield seed, random_log(random.Random(f"{KIND} {seed}"), KIND)


def slow_gaps(events: list[dict[str, Any]], rules: str) -> dict[Key, Parts]:
    kind = Folding if rules == "full" else Slow
    return {key_of(g): g.parts for g in kind(Log(events), rules, STAND_IN).gaps()}


@pytest.mark.parametrize("batch", range(0, SEEDS, BATCH))
def test_the_slow_partitions_agree_to_the_nanosecond(batch: int) -> None:
    for seed, events in logs(batch):
        full, post = slow_gaps(events, "full"), slow_gaps(events, "post")
        assert {k: folded(parts) for k, parts in full.items()} == {k: folded(parts) for k, parts in post.items()}, seed


@pytest.mark.parametrize("batch", range(0, SEEDS, BATCH))
def test_full_folds_to_post(batch: int, tmp_path: Path) -> None:
    for seed, events in logs(batch):
        run = opened(events, tmp_path)
        carved = slow_gaps(events, "full")
        post = {key: parts for key, _, parts, _ in fast_gaps(run, sb.partition(run, "post"))}
        for baseline in (None, ExplicitBaseline(**STAND_IN)):  # what it is decides on the split of a decode alone
            full = {key: parts for key, _, parts, _ in fast_gaps(run, sb.partition(run, "full", baseline))}
            assert full.keys() == post.keys()
            for key in full:
                left, all_of = folded(full[key]), folded(post[key])
                missing = {c: all_of.get(c, 0) - left.get(c, 0) for c in left.keys() | all_of.keys()}
                assert sum(missing.values()) == full[key].get("os", 0), (seed, key)
                for label, ns in missing.items():
                    assert ns >= 0, (seed, key, label)
                    assert abs(ns - carved[key].get(f"os {label}", 0)) <= 2, (seed, key, label)


def test_these_logs_have_what_is_folded() -> None:
    """Delay told by segment and by step, `slow`, `pad`, `graph` and evictions, each in a good part of the logs."""
    seen: Counter[str] = Counter()
    for seed in range(200):
        events = random_log(random.Random(f"{KIND} {seed}"), KIND)
        seen.update({f"delay of a {e['e']}" for e in events if e.get("run_delay_ns")})
        causes = {c for g in Slow(Log(events), "full", STAND_IN).gaps() for c in g.parts}
        seen.update(causes)
    wanted = ("delay of a segment", "delay of a step", "os", "slow", "pad", "graph", "gc", "tok", "prefill", "preempt")
    assert min(seen[what] for what in wanted) >= 25, seen
    assert not [c for c in seen if c.startswith("other:") or c in ("unscheduled", "sched", "sample", "output")]
