"""How far predictions are off: from the baseline run of each seed of a ladder to its other rungs, which were measured.

    python benchmarks/predict.py LADDER_FOLDER [--repeats LOG ...] [--held SEED ...] [--replicas 9]

Each rung is predicted from the baseline of its seed alone: with nothing known of the rung's machine; with its speed,
as the rung's bookkeeping tells it, as a level and over time; with that and its waits for a core, which the OS counted;
and with the speed of the rung's own decodes, which no prediction can have: what is left then is the simulator's own
error. Beside them "nothing changes" and the ceiling. --held: the seeds that nothing was chosen on, in a table of their
own. --repeats: logs of one setting and one trace, recorded several times: how far apart a measurement is from itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import stallbook as sb
from stallbook.demo.limits import limits_of
from stallbook.partition import partition
from stallbook.predict.answer import Base, base_of, ceiling, predict
from stallbook.predict.model import decode_law, fit, simulate_with
from stallbook.predict.model import settings_of as recorded
from stallbook.predict.observed import Observed, observe
from stallbook.predict.outcome import Outcome, brief, of_partition
from stallbook.predict.policy import DemoPolicy
from stallbook.predict.pool import Job
from stallbook.predict.replay import Replay, replay
from stallbook.predict.speed import Series, Waits, over_time, waits_of
from stallbook.predict.yardstick import WINDOW_NS
from stallbook.study.rungs import RUNGS, settings_of

TIMES = ("itl.p50", "itl.p90", "itl.p99", "itl.p99.9", "itl.max", "ttft.p50", "ttft.p99", "tokens_per_s")
COUNTS = ("preemptions", "eager_steps")
WAYS = (
    "nothing changes", "ceiling", "machine unknown", "speed's level", "speed over time", "speed's level and waits",
    "speed and waits over time", "decodes' own level", "decodes' own speed",
)  # fmt: skip
MACHINE = "speed and waits over time"
"""What the accuracy of predictions is judged by: the machine as it was at the time, nothing of the engine."""


def error(name: str, said: float | None, measured: float | None) -> float | None:
    """As a fraction of what was measured; of counts below 10, of 10."""
    if said is None or measured is None:
        return None
    if name in COUNTS:
        return abs(said - measured) / max(measured, 10.0)
    return abs(said / measured - 1) if measured else None


def decodes(base: Base, seen: Observed) -> tuple[Any, Any, Any]:
    """A run's decodes: when each began, what it took (its wait for a core apart), and what the baseline's laws say."""
    table = seen.tables["decode"]
    good = table["ns"] > 0
    return table["t"][good], table["ns"][good], decode_law(table, base.model.costs)[good]


def own_speed(base: Base, seen: Observed) -> Series:
    """The speed of a rung's decodes over 2 s by the laws of the baseline."""
    t, ns, law = decodes(base, seen)
    series = over_time(seen.origin, t, ns.astype(np.float64), law, window_ns=WINDOW_NS, least=1)
    assert series is not None
    return series


def whole_speed(base: Base, seen: Observed) -> float:
    """The same over all of a run."""
    _, ns, law = decodes(base, seen)
    return float(ns.sum() / law.sum())


def at_own_speed(base: Base, settings: Any, seen: Observed, waits: Waits) -> Outcome:
    """Simulated at the speed of the rung's own decodes, with what the baseline's own decodes leave as noise."""
    model, origin = base.model, base.model.seen.origin
    mine, theirs = own_speed(base, model.seen), own_speed(base, seen)

    def rest(t: Any) -> Any:
        return (model.speed.at(t) if model.speed else 1.0) / mine.at(t)

    noise = model.noise
    noise = replace(
        noise, factor=noise.factor * rest(noise.t + origin),
        chunk_factor=noise.chunk_factor * rest(noise.chunk_t + origin),
    )  # fmt: skip
    factors = rest(np.array([r.at_ns for r in model.requests]) + origin).tolist()
    requests = tuple(replace(r, tok_ns=r.tok_ns * f) for r, f in zip(model.requests, factors, strict=True))
    model = replace(model, noise=noise, requests=requests, speed=Series(origin, np.ones(1)))
    return brief(simulate_with(model, settings, speed=theirs, waits=waits))


def cell(base: Base, folder: Path, rung: Any, seed: int, replicas: int) -> dict[str, Any]:
    """Everything about one rung of one seed."""
    run = sb.open(folder / f"{rung.slug}__s{seed}.stall")
    measured, parts = of_partition(partition(run)), of_partition(partition(run, "post"))
    model, settings = base.model, settings_of(rung, base.model.settings)
    change = {k: v for k, v in vars(settings).items() if v != getattr(model.settings, k)}
    seen = observe(run, DemoPolicy(limits_of(recorded(run))))
    series, waits = model.yardstick.series(seen), waits_of(run, seen.origin)

    def jobs(wanted: Any) -> list[Outcome]:
        return [job.run(model.engine) for job in wanted]

    (told,) = predict(base, [change], jobs, replicas=replicas, speed=series, waits=waits)
    level = series.level / model.speed.level if series and model.speed else 1.0
    said: dict[str, Any] = {"nothing changes": base.measured.values, "ceiling": ceiling(base, change) or {}}
    own = whole_speed(base, seen) / whole_speed(base, model.seen)
    for way, job in (
        ("machine unknown", Job(settings)), ("speed's level", Job(settings, level)),
        ("speed over time", Job(settings, speed=series)),
        ("speed's level and waits", Job(settings, level, waits=waits)),
        ("decodes' own level", Job(settings, own, waits=waits)),
    ):  # fmt: skip
        said[way] = job.run(model.engine).values
    said[MACHINE] = {name: f.value for name, f in told.figures.items()}
    said["decodes' own speed"] = at_own_speed(base, settings, seen, waits).values
    paired = simulate_with(model, settings, speed=series, waits=waits)
    share = of_partition(partition(paired.run(), "post"))
    every = {*share.share, *parts.share}
    inside = {n: f.low <= (measured[n] or 0) <= f.high for n, f in told.figures.items()}
    return {
        "cell": f"{rung.slug} s{seed}", "speed": level / own, "said": said, "measured": dict(measured.values),
        "inside": inside,
        "tv": sum(abs(share.share.get(c, 0) - parts.share.get(c, 0)) for c in every) / 2,
        "top": share.top == parts.top, "base": dict(base.measured.values), "own": dict(base.own.values),
    }  # fmt: skip


def of_seed(folder: Path, seed: int, replicas: int) -> dict[str, Any]:
    """All rungs of a seed, from its baseline."""
    model = fit(sb.open(folder / f"baseline__s{seed}.stall"))
    base = base_of(model, lambda jobs: [job.run(model.engine) for job in jobs], force=True)
    cells = [cell(base, folder, rung, seed, replicas) for rung in RUNGS[1:]]
    return {"misfit": dict(base.misfit), "drift": base.drift, "replay": model.seen.replay.steps, "cells": cells}


def summary(values: list[float | None]) -> str:
    known = [100 * v for v in values if v is not None]
    return f"{np.median(known):.0f} ({np.quantile(known, 0.9):.0f})" if known else "-"


def row(name: str, cells: list[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def tables(found: list[dict[str, Any]], title: str) -> None:
    cells = [c for one in found for c in one["cells"]]
    names = (*TIMES, *COUNTS)
    print(f"{title}: {len(cells)} cells; median error in % (worst tenth)\n")
    print(row("", list(names)) + "\n|---|" + "---:|" * len(names))
    own = [[abs(one["misfit"][n]) for one in found] for n in names]
    print(row("the model on its own run", [summary(list(v)) for v in own]))
    for way in WAYS:
        errors = [[error(n, c["said"][way].get(n), c["measured"][n]) for c in cells] for n in names]
        print(row(way, [summary(v) for v in errors]))
    print(f"\nTail shares (post rules), total variation: {np.median([c['tv'] for c in cells]):.3f} "
          f"({np.quantile([c['tv'] for c in cells], 0.9):.3f}); top cause right in "
          f"{np.mean([c['top'] for c in cells]):.0%} of cells")  # fmt: skip
    inside: dict[str, list[bool]] = defaultdict(list)
    for c in cells:
        for n, yes in c["inside"].items():
            inside[n].append(yes)
    print("80% intervals hold: " + ", ".join(f"{n} {np.mean(v):.0%}" for n, v in inside.items()))
    off = [abs(c["speed"] - 1) for c in cells]
    print(f"the bookkeeping's speed over the decodes' own: off by {summary(list(off))}")
    for n in ("itl.p99", "itl.p99.9"):
        model, first = [], []
        for c in cells:
            true = c["measured"][n] / c["base"][n]
            model.append(abs(c["said"][MACHINE][n] / c["own"][n] / true - 1))
            if n in c["said"]["ceiling"]:
                first.append(abs(c["said"]["ceiling"][n] / c["base"][n] / true - 1))
        print(f"ratio at {n}: the model's {summary(list(model))}, the ceiling's {summary(list(first))}")


def floor(logs: list[Path]) -> None:
    """How far apart repeats of one setting are: each pair, as an error of one by the other."""
    every = [of_partition(partition(sb.open(log))) for log in logs]
    names = (*TIMES, *COUNTS)
    errors = [[error(n, a[n], b[n]) for a, b in itertools.permutations(every, 2)] for n in names]
    print(row(f"noise floor: {len(logs)} repeats", [summary(v) for v in errors]))


def replayed(log: Path) -> tuple[int, int]:
    """Steps of a run, and those that its scheduler plans otherwise."""
    run, found = sb.open(log), Replay()
    for _ in replay(run, DemoPolicy(limits_of(recorded(run))), found):
        pass
    return found.steps, len(found.mismatches)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=Path, nargs="*", default=[])
    parser.add_argument("--held", type=int, nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--replicas", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    seeds = sorted(int(p.stem.rpartition("__s")[2]) for p in args.folder.glob("baseline__s*.stall"))
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        counts = list(pool.map(replayed, sorted(args.folder.glob("*__s*.stall"))))
        steps, other = (sum(column) for column in zip(*counts, strict=True))
        print(f"Replay: {len(counts)} runs, {steps:,} steps, {other} planned otherwise than recorded\n", flush=True)
        futures = [pool.submit(of_seed, args.folder, seed, args.replicas) for seed in seeds]
        found = [future.result() for future in futures]
    if args.json:
        args.json.write_text(json.dumps(found))
    tables(found, "all seeds")
    if held := [one for one, seed in zip(found, seeds, strict=True) if seed in args.held]:
        print()
        tables(held, "seeds " + ", ".join(map(str, args.held)))
    if len(args.repeats) > 1:
        floor(args.repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
