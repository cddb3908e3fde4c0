"""What recording costs: microseconds, bytes and GC-tracked objects a step; and the demonstrator with and without it.

    python benchmarks/recorder.py                    # the first part, about 20 s
    python benchmarks/recorder.py --demo-pairs 20    # and 20 alternating pairs of short demonstrator runs

A step has 6 segments and a batch of 32. Each variant has a process of its own, as in an engine: the interpreter
specialises code for one class, and several recorders in turn would undo that for each other. There it takes turns with
the clock reads alone, 20 steps to warm up and 100 measured. Figures are medians over rounds, and first deciles
("quiet"); `net` is above the clock reads of the same round.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from stallbook.record import Recorder, samplers
from stallbook.record.counters import RunDelay, available

SEGMENTS, BATCH, WARM, BLOCK = 6, 32, 20, 100
clock = time.perf_counter_ns


def clock_reads(steps: int) -> None:
    """The clock reads of a recorded step: begin, 6 segments, the emission, end."""
    read = clock
    for _ in range(steps):
        read()
        for _ in range(SEGMENTS):
            read()
        read()
        read()


class Loop:
    """Steps on one recorder."""

    def __init__(self, folder: Path, name: str, os_counters: str | None, changing: bool = False) -> None:
        self.recorder = Recorder(
            folder / f"{name}.stall", engine="benchmark", os_counters=os_counters, gc_pauses=False, strict=True
        )
        self.names = [self.recorder.name(f"segment {i}") for i in range(SEGMENTS)]
        self.handles = [self.recorder.arrive(f"request {i}") for i in range(BATCH)]
        for handle in self.handles:
            self.recorder.join(handle)
        self.changing = changing
        self.file = folder / f"{name}.stall" / "engine.spool"

    def __call__(self, steps: int) -> None:
        """Record that many."""
        recorder, names, changing = self.recorder, self.names, self.changing
        for _ in range(steps):
            recorder.begin()
            if changing:
                recorder.part(self.handles[0])
                recorder.join(self.handles[0])
            for name in names:
                recorder.enter(name)
            recorder.emit()
            recorder.end(1, BATCH, BATCH, 9000)

    def bytes_per_step(self, steps: int = 500) -> float:
        """By the writer's position: the file itself grows in chunks."""
        store: Any = self.recorder._store
        before = store.written
        self(steps)
        return float(store.written - before) / steps


def interleaved(variants: dict[str, Callable[[int], None]], rounds: int) -> dict[str, list[float]]:
    """Microseconds a step of each variant, a figure a round."""
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            run(WARM)
            start = clock()
            run(BLOCK)
            taken[name].append((clock() - start) / BLOCK / 1000)
    return taken


def quiet(figures: list[float]) -> float:
    """The first decile: what it takes when no other process shares the core."""
    return statistics.quantiles(figures, n=10)[0]


def tracked_objects(loop: Loop, steps: int = 2000) -> float:
    """GC-tracked objects that a step leaves behind."""
    loop(10)
    gc.collect()
    gc.disable()
    try:
        before, count = len(gc.get_objects()), gc.get_count()[0]
        loop(steps)
        return max(len(gc.get_objects()) - before, gc.get_count()[0] - count) / steps
    finally:
        gc.enable()


VARIANTS: dict[str, dict[str, Any]] = {
    "no OS counters": {"os_counters": None},
    "no OS counters, a join and a part": {"os_counters": None, "changing": True},
    "OS counters a step": {"os_counters": "step"},
    "OS counters a segment, short ones": {"os_counters": "segment"},
    "OS counters a segment, long ones": {"os_counters": "segment", "look_always": True},
}
"""Long segments: longer than 0.5 ms, so that each border is a look at the counters."""


def measured(name: str, rounds: int) -> dict[str, Any]:
    """Everything about one variant, in a process of its own."""
    settings = dict(VARIANTS[name])
    if settings.pop("look_always", False):
        samplers.SHORT_NS = samplers.SegmentSampler._short_ns = 0  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(Path(folder), "x", **settings)
        gc.disable()
        taken = interleaved({"clock": clock_reads, "steps": loop}, rounds)
        gc.enable()
        recorder = loop.recorder
        own = recorder.self_ns / recorder._step / 1000
        found = {"taken": taken, "own": own, "bytes": loop.bytes_per_step(), "objects": tracked_objects(loop)}
        assert not recorder.errors
        assert not recorder.dropped
        recorder.close()
    return found


def micro(rounds: int) -> None:
    titles = "".join(f"{title:>11}" for title in ("median", "net", "quiet", "quiet net", "own", "bytes", "objects"))
    print(f"{'us a step':36}{titles}   {rounds} rounds of {BLOCK} steps")
    base: list[float] = []
    for name in VARIANTS:
        if VARIANTS[name]["os_counters"] and not available():
            continue
        with ProcessPoolExecutor(1) as pool:
            found = pool.submit(measured, name, rounds).result()
        clocks, figures = found["taken"].values()
        base += clocks
        net = [f - b for f, b in zip(figures, clocks, strict=True)]
        row = statistics.median(figures), statistics.median(net), quiet(figures), quiet(figures) - quiet(clocks)
        print(f"{name:36}" + "".join(f"{figure:11.2f}" for figure in (*row, found["own"])), end="")
        print(f"{found['bytes']:11.0f}{found['objects']:11.3f}", flush=True)
    print(f"{'the clock reads alone':36}{statistics.median(base):11.2f}{'':11}{quiet(base):11.2f}")
    print("own: the recorder's own figure of its cost, clock reads included")
    primitives()


def primitives() -> None:
    """What one read of each counter costs here."""
    reads: dict[str, Callable[[], object]] = {"perf_counter_ns": clock, "thread_time_ns": time.thread_time_ns}
    if available():
        reads["a look at the switches"] = functools.partial(RunDelay().delta, 0)
    taken: dict[str, list[float]] = {name: [] for name in reads}
    for _ in range(50):
        for name, read in reads.items():
            start = clock()
            for _ in range(BLOCK):
                read()
            taken[name].append((clock() - start) / BLOCK / 1000)
    print("one read, us: " + ", ".join(f"{name} {statistics.median(t):.2f}" for name, t in taken.items()))


def demo_run(folder: Path, label: str, seconds: float, record: bool, seed: int, rate: float) -> float:
    """CPU microseconds of the engine thread a token, of one demonstrator run."""
    settings = json.dumps({"seconds": seconds, "seed": seed, "record": record, "rate": rate})
    command = [sys.executable, "-m", "stallbook.demo", "--settings", settings, "--out", str(folder / f"{label}.stall")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    summary = json.loads(done.stdout.strip().splitlines()[-1])["done"]
    return float(summary["cpu_s"]) / int(summary["tokens"]) * 1e6


def demo_pairs(pairs: int, seconds: float, rate: float) -> None:
    """Alternating pairs: with and without, in turn first."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            order = (True, False) if pair % 2 else (False, True)
            cost = {on: demo_run(Path(folder), f"{pair}-{on}", seconds, on, pair + 1, rate) for on in order}
            ratios.append(cost[True] / cost[False] - 1)
            print(f"pair {pair}: {cost[True]:.1f} with, {cost[False]:.1f} without, us of CPU a token", flush=True)
    mean = statistics.mean(ratios)
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    verdict = "not resolved by this run" if abs(mean) < 2 * error else "resolved"
    print(f"CPU a token, with the recorder: {mean:+.2%} +- {error:.2%} (standard error, {pairs} pairs): {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=401)
    parser.add_argument("--demo-pairs", type=int, default=0)
    parser.add_argument("--demo-seconds", type=float, default=10.0)
    parser.add_argument("--demo-rate", type=float, default=4.0, help="requests a second; well below capacity")
    options = parser.parse_args()
    micro(options.rounds)
    if options.demo_pairs:
        demo_pairs(options.demo_pairs, options.demo_seconds, options.demo_rate)


if __name__ == "__main__":
    main()
