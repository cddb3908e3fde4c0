"""What else than the machine's speed makes a step's bookkeeping dear: `python benchmarks/bookkeeping.py LADDER ...`

Of every run of a ladder's folder, the bookkeeping of the steps that only decode over what the yardstick of the seed's
baseline says at that moment: behind a prompt, behind a collection, with another batch than before, and so on, over the
same of steps that are none of these. Means over the runs.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stallbook as sb
from stallbook.demo.limits import limits_of
from stallbook.predict.model import settings_of
from stallbook.predict.observed import Observed, named, observe
from stallbook.predict.policy import DemoPolicy
from stallbook.predict.yardstick import (
    BEHIND_PROMPT,
    HELD_UP,
    Yardstick,
    asking,
    collected_in,
    plain_steps,
    yardstick_of,
)
from stallbook.study.rungs import RUNGS

LEAST = 20
ROWS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 512))


def seen_of(path: Path) -> Observed:
    """A run of the ladder."""
    run = sb.open(path)
    return observe(run, DemoPolicy(limits_of(settings_of(run))))


def conditions(seen: Observed) -> Iterator[tuple[str, Any]]:
    """The steps that each thing makes dear, by a name."""
    run = seen.run
    rows, n = run.steps.decode_tokens, len(run.steps.id)

    def mask(at: Any, later: int = 0) -> Any:
        found = np.zeros(n + 8, np.bool_)
        found[at + later] = True
        return found[:n]

    prompt = seen.tables["prefill"]["step"]
    behind = [mask(prompt, k) for k in range(BEHIND_PROMPT + 1)]
    for k in range(1, len(behind)):
        yield f"step {k} behind a prompt", behind[k] & ~np.logical_or.reduce(behind[:k])
    collected = mask(collected_in(run), 1)
    for low, high in ROWS:
        yield f"behind a collection, {low} to {high} rows", collected & (rows >= low) & (rows <= high)
    yield "with another batch than before", rows != np.concatenate([rows[:1], rows[:-1]])
    yield "with the probe", mask(run.segments.step[named(run, "probe") & (run.segments.step >= 0)])
    yield "while a tokenizer elsewhere has a prompt", asking(seen)


def dearer(usual: Yardstick, seen: Observed) -> Iterator[tuple[str, float, float]]:
    """Of each thing how many times as dear steps are with it, and how many of the steps with so many rows have it."""
    series, steps = usual.series(seen), seen.run.steps
    if series is None:
        return
    ns = seen.tables["sched"]["ns"]
    due = np.array([usual.usual.get(n, 0.0) for n in steps.decode_tokens.tolist()]) * series.at(steps.t0)
    decoding = (due > 0) & (ns > 0)
    for name in ("prefill", "swap"):
        decoding[seen.tables[name]["step"]] = False
    decoding[seen.run.segments.step[named(seen.run, "tok") & (seen.run.segments.step >= 0)]] = False
    clean = np.isin(steps.t0, plain_steps(seen)[0])
    taken = np.minimum(ns, HELD_UP * due)
    for name, which in conditions(seen):
        mine = decoding & which
        rows = np.unique(steps.decode_tokens[mine])
        like = clean & np.isin(steps.decode_tokens, rows)
        if mine.sum() >= LEAST <= like.sum():
            rest = decoding & np.isin(steps.decode_tokens, rows)
            yield (
                name,
                (taken[mine].sum() / due[mine].sum()) / (taken[like].sum() / due[like].sum()),
                (mine.sum() / rest.sum()),
            )


def main() -> None:
    """Measure and print."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for folder in map(Path, sys.argv[1:]):
        for path in sorted(folder.glob("baseline__s*.stall")):
            seed = path.stem.rpartition("__s")[2]
            usual = yardstick_of(seen_of(path))
            for rung in RUNGS:
                for name, times, share in dearer(usual, seen_of(folder / f"{rung.slug}__s{seed}.stall")):
                    found[name].append((times, share))
    for name, values in found.items():
        times, share = np.mean(values, axis=0)
        print(f"{name}: {times:.2f} times, {share:.1%} of such steps ({len(values)} runs)")


if __name__ == "__main__":
    main()
