"""Gaps a second: the partition against the post's rules gap by gap in plain Python, on one log, in one run.

    python benchmarks/partition.py                    # 1 million gaps, NumPy; 10 million, the `fast` extra
    python benchmarks/partition.py --stream 100       # 100 million gaps, summarised piece by piece: time and memory

The plain partition is timed on a share of the same log's gaps (its cost is per gap), the fast one on all of them,
rounds interleaved; the ratio is of medians. What is timed: from the tables of a `Run` to every part of every gap
("parts"), or to what the report prints of the gaps ("report": percentiles, tail, histogram, shares).
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stallbook.partition import Partition, partition
from stallbook.run import Ints, Run
from stallbook.tally import Tally, merge, tally
from synthetic import synthetic_run

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from plain_post import PlainPost, arrays_of, plain_gaps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gaps", type=float, default=0, help="measure this many gaps only, with both kernels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", type=int, default=40_000, help="gaps that the plain partition is timed on, a round")
    parser.add_argument("--stream", type=int, default=0, metavar="MILLIONS")
    args = parser.parse_args()
    if args.stream:
        stream(args.stream)
        return
    sizes = (
        [(int(args.gaps), "numpy"), (int(args.gaps), "numba")] if args.gaps else [(10**6, "numpy"), (10**7, "numba")]
    )
    for gaps, kernels in sizes:
        measure(gaps, kernels, args.rounds, args.plain)


def measure(gaps: int, kernels: str, rounds: int, plain: int) -> None:
    os.environ["STALLBOOK_KERNELS"] = kernels
    run = synthetic_run(gaps)
    reference = Plain(run, plain)
    first = partition(run, "post")
    out = np.empty((len(first.row_of_gap), len(first.causes)), np.int64)
    first.parts(out)
    reference.check(first, out)
    contenders: dict[str, Callable[[], object]] = {
        "plain": reference.run_once,
        "parts": lambda: partition(run, "post").parts(out),
        "report": lambda: summary(partition(run, "post")),
        "report, full rules": lambda: summary(partition(run, "full")),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    rate = {name: (reference.gaps if name == "plain" else len(out)) / statistics.median(t) for name, t in times.items()}
    print(f"{len(out):,} gaps, {kernels}, medians of {rounds} rounds (plain: {reference.gaps:,} gaps a round)")
    for name, value in rate.items():
        print(f"  {name:20s} {value / 1e6:8.3f} million gaps/s   {value / rate['plain']:7.0f}x the plain partition")
    print(f"  full costs {rate['report'] / rate['report, full rules']:.2f}x post a gap", flush=True)


def summary(p: Partition) -> tuple[object, ...]:
    """What the report prints of the gaps."""
    t: Tally = tally(p)
    percentiles = [t.lengths.percentile(q) for q in (50, 90, 99, 99.9)]
    shares = t.part_share("fwd", clean=True).percentile(50), t.part_share("fwd", clean=False).percentile(50)
    return percentiles, t.lengths.max, t.tail().share, t.mix().share, t.histogram(), shares


class Plain:
    """The plain partition of some of a run's requests, prepared outside the timing."""

    def __init__(self, run: Run, gaps: int) -> None:
        arrays = arrays_of(run)
        e = run.emissions
        last = int(e.request[min(gaps, len(e.request) - 1)])
        self.end = int(np.searchsorted(e.request, last, "left"))
        self.emissions = arrays["emissions"][: self.end]
        self.evictions = [row for row in arrays["evictions"] if row[0] < last]
        self.arrays = (arrays["steps"], arrays["segments"], arrays["pauses"])
        self.partition = PlainPost(*self.arrays)
        self.gaps = len(self.run_once())

    def run_once(self) -> list[dict[str, object]]:
        """Every part of the chosen gaps."""
        return plain_gaps(*self.arrays, self.emissions, self.evictions, partition=self.partition)

    def check(self, p: Partition, parts: Ints) -> None:
        """Both give the same parts, to 3 ns, before any of them is timed."""
        for i, gap in enumerate(self.run_once()):
            for k, cause in enumerate(p.causes):
                plain = gap["parts"]["kernel" if cause == "fwd" else cause] * 1e6  # type: ignore[index]
                assert abs(parts[i, k] - plain) <= 3, (i, cause, parts[i, k], plain)


def stream(millions: int) -> None:
    """Summarise many gaps piece by piece: each piece is a recording; the tallies add up exactly."""
    pieces = []
    spent = 0.0
    for seed in range(millions):
        run = synthetic_run(10**6, seed)
        start = time.perf_counter()
        pieces.append(tally(partition(run, "post")))
        spent += time.perf_counter() - start
    start = time.perf_counter()
    total = merge(pieces)
    p99 = total.lengths.percentile(99)
    spent += time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    count = total.lengths.count
    print(f"{count:,} gaps in {millions} pieces: {spent:.1f} s of partition and tally, p99 {(p99 or 0) / 1e6:.1f} ms")
    print(f"  {count / spent / 1e6:.1f} million gaps/s; peak memory of the whole process {peak:,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
