"""The sixth pile: decode steps several times slower than usual, and how much of their excess is charged to `os`.

    python benchmarks/sixth_pile.py                           # about 6 minutes; nothing else should run
    python benchmarks/sixth_pile.py --out pile                # keep the logs, and pile.json
    python benchmarks/sixth_pile.py --again pile              # the tables of kept logs

Runs the demonstrator in several configurations, seed by seed:

- *calm*: one core, one BLAS thread, a batch that is always full; nothing else on the core;
- *neighbour*, *3 neighbours*: the same with busy processes on that core, awake and asleep in turn;
- *1 thread*, *2 threads*: the last rung of the ladder, tokenizer in a process of its own, on all cores;
- *2 threads, alone*: the tokenizer back on the loop, so that nothing competes: what two threads take uncontended;
- *2 threads + 1*: with a busy process on one of the cores, awake and asleep in turn;
- *bent*: as *neighbour*, but with batches of all sizes, some above the captured ones: a log for both baselines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import stallbook as sb
from stallbook.cli.child import child_command
from stallbook.demo import Settings
from stallbook.demo.__main__ import BLAS_VARIABLES
from stallbook.inject.machine import Competitor
from stallbook.partition import Partition, partition
from stallbook.run import ExplicitBaseline
from stallbook.study.bent import Bent, compare
from stallbook.study.pile import (
    Charged,
    DecodeSteps,
    Pile,
    Span,
    charged,
    clear,
    decode_steps,
    gaps_of,
    inside,
    pile,
    spans_of,
    uncontended,
)  # fmt: skip
from stallbook.study.pile_text import Result, as_json, to_text
from stallbook.study.run import machine
from stallbook.study.rungs import RUNGS, settings_of
from stallbook.tally import Distribution

BUSY_S = 0.7
"""A neighbour is awake for so long, and asleep for as long."""
WARM_NS = 1_000_000_000
"""Steps at the start of a run, in which memory is touched for the first time."""


@dataclass(frozen=True)
class Plan:
    """A configuration. own: judged against its own quiet steps, else against those of the configuration named."""

    name: str
    settings: Settings
    one_core: bool = False
    neighbours: int = 0
    against: str = ""


def plans(seconds: float, rate: float) -> list[Plan]:
    last = settings_of(RUNGS[-1], Settings(seconds=seconds, rate=rate))
    full = replace(
        last,
        rate=2.5 * rate,
        seconds=seconds / 4,
        max_num_seqs=16,
        tokenize="loop",
        admit_watermark=0.0,
        kv_blocks=2000,
    )
    mixed = replace(last, rate=0.6 * rate, tokenize="loop", capture_sizes=(1, 2, 4, 8, 16))
    alone = "2 threads, alone"
    return [
        Plan("calm", full, one_core=True),
        Plan("neighbour", full, one_core=True, neighbours=1),
        Plan("3 neighbours", full, one_core=True, neighbours=3),
        Plan("1 thread", last),
        Plan(alone, replace(last, blas_threads=2, tokenize="loop")),
        Plan("2 threads", replace(last, blas_threads=2), against=alone),
        Plan("2 threads + 1", replace(last, blas_threads=2), neighbours=1),
        Plan("bent", mixed, one_core=True, neighbours=1),
    ]


def stolen() -> tuple[int, int]:
    """Ticks that the hypervisor took, and all ticks, of all cores."""
    with open("/proc/stat") as file:  # noqa: PTH123
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def run(plan: Plan, seed: int, log: Path) -> dict[str, Any]:
    """One run of the demonstrator; when its neighbour had a core, and what the hypervisor took."""
    settings = replace(plan.settings, seed=seed)
    environment = {**os.environ, **dict.fromkeys(BLAS_VARIABLES, str(settings.blas_threads))}
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    before = stolen()
    command = [word for word in child_command(settings, log) if word != "--progress"]
    neighbours = [Competitor(core) for _ in range(plan.neighbours)]
    if plan.one_core:
        os.sched_setaffinity(0, {core})
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    os.sched_setaffinity(0, allowed)
    while child.poll() is None:
        if (log / "manifest.json").exists():
            for neighbour in neighbours:
                neighbour.run(int(BUSY_S * 1e9))
            time.sleep(BUSY_S)
        time.sleep(BUSY_S)
    slices = [span for neighbour in neighbours for span in neighbour.close()]
    if child.returncode:
        raise SystemExit(f"{plan.name}: the demonstrator ended with {child.returncode}")
    taken, ticks = (b - a for a, b in zip(before, stolen(), strict=True))
    told = {"spans": spans_of(slices), "stolen": taken / ticks if ticks else None}
    log.with_suffix(".json").write_text(json.dumps(told))
    return told


def path_of(folder: Path, plan: Plan, seed: int) -> Path:
    return folder / f"{plan.name.replace(' ', '-').replace(',', '').replace('+', 'and')}__s{seed}.stall"


class Judge:
    """Reads the logs of one seed after the other, and adds up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.baselines: dict[tuple[str, int], ExplicitBaseline] = {}

    def result(self, plan: Plan, seeds: Sequence[int]) -> Result:
        """All runs of one configuration together."""
        gaps, time_, total, quiet = Distribution.of(np.zeros(0, np.int64)), Charged(), Pile(), Pile()
        probes, taken = [], []
        for seed in seeds:
            path = path_of(self.folder, plan, seed)
            told = json.loads(path.with_suffix(".json").read_text())
            spans: list[Span] = [(a, b) for a, b in told["spans"]]
            p = self._partition(plan, seed, path, spans)
            gaps, time_ = gaps + gaps_of(p), time_ + charged(p)
            steps = decode_steps(p)
            steps = steps.where(_warm(steps))
            total += pile(steps.where(inside(steps, spans)) if spans else steps)
            quiet += pile(steps.where(clear(steps, spans)))
            probes += p.run.probes.ns.tolist()
            taken.append(told["stolen"])
        judged = "steps beside a neighbour" if plan.neighbours else "all steps"
        against = f"those of {plan.against}" if plan.against else "the others" if plan.neighbours else "their own"
        return Result(
            plan.name, f"{judged} against {against}", len(seeds), gaps, time_, total,
            quiet if plan.neighbours else None,
            statistics.median(probes) if probes else None, statistics.fmean(t or 0.0 for t in taken),
        )  # fmt: skip

    def _partition(self, plan: Plan, seed: int, path: Path, spans: list[Span]) -> Partition:
        log = sb.open(path)
        if plan.against:
            base = self.baselines[plan.against, seed]
        else:
            steps = decode_steps(partition(log))
            base = uncontended(steps.where(clear(steps, spans) & _warm(steps)))
        self.baselines[plan.name, seed] = base
        return partition(log, "full", base)


def _warm(steps: DecodeSteps) -> Any:
    return steps.t0 >= steps.t0[0] + WARM_NS


def study(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    seeds = [int(seed) for seed in options.seeds.split(",")]
    todo = plans(options.seconds, options.rate)
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if not options.again:
        for seed in seeds:
            for plan in todo:
                if plan.name == "bent" and seed != seeds[0]:
                    continue
                print(f"seed {seed}: {plan.name}", file=sys.stderr, flush=True)
                run(plan, seed, path_of(folder, plan, seed))
    judge = Judge(folder)
    results = [judge.result(plan, seeds) for plan in todo if plan.name != "bent"]
    bent = bent_of(path_of(folder, todo[-1], seeds[0]))
    facts = {"machine": machine(), "seconds": options.seconds, "rate": options.rate, "seeds": seeds, "started": started}
    if options.again and (folder / "pile.json").exists():
        before = json.loads((folder / "pile.json").read_text())
        facts = {key: before[key] for key in facts}
    return as_json(results, bent, facts)


def bent_of(path: Path) -> Bent:
    spans = [(a, b) for a, b in json.loads(path.with_suffix(".json").read_text())["spans"]]
    return compare(sb.open(path), spans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,7")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long requests arrive")
    parser.add_argument("--rate", type=float, default=8.0, help="requests a second; well below capacity")
    parser.add_argument("--out", type=Path, help="keep the logs and pile.json in this new folder")
    parser.add_argument("--again", type=Path, help="run nothing: read the logs of such a folder")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.again or options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        told = study(options, folder)
        if options.out or options.again:
            (folder / "pile.json").write_text(json.dumps(told, indent=2) + "\n")
    print(json.dumps(told, indent=2) if options.format == "json" else to_text(told))


if __name__ == "__main__":
    main()
