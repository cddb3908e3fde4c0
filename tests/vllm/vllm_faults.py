"""Plants faults in a running server, and makes of the journals what is true about the run: see `stallbook.inject`.

The journals are the plugin's, inside the server, and those of this process: when the competitor had the engine's
core, and when the API server was stopped.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from vllm_server import Server

from stallbook.inject.machine import Competitor
from stallbook.inject.truth import Planted, Truth, Window

NOISE_NS = 50_000
USUAL_NS, USUAL_SHARE = 1_000_000, 0.15
"""Between two marks the engine's thread also waits for the interpreter's lock, for other threads of its process and,
where they share a core, for the engine's other process, which polls."""
RECOMPUTED_NS = 1_000_000_000
"""For how long after it is back a victim's cache is computed again, at most."""
SPACE_S = 0.45
"""Between two faults."""
COLLECT, TAKE = signal.SIGUSR2, signal.SIGUSR1


@dataclass
class Told:
    """What the journals hold. stops: the API server stood still. slices: the competitor ran."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    slices: list[tuple[int, int]] = field(default_factory=list)
    stops: list[tuple[int, int]] = field(default_factory=list)
    begin: int = 0
    end: int = 0

    def save(self, path: Path) -> None:
        """Write all of it."""
        path.write_text(json.dumps(asdict(self)))

    def of(self, what: str) -> list[dict[str, Any]]:
        """The plugin's lines of one kind."""
        return [line for line in self.lines if line["what"] == what]


def read_journals(folder: Path) -> list[dict[str, Any]]:
    """What the plugin wrote in all processes."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def pin(server: Server, cpu: int) -> None:
    """The main threads of engine core and worker on one CPU."""
    roles = server.processes()
    for pid in [*roles.get("engine", []), *roles.get("worker", [])]:
        os.sched_setaffinity(pid, {cpu})


def plant(server: Server, told: Told, kinds: Sequence[str], seed: int, burst: Any) -> None:
    """One fault after the other, in an order that the seed draws. `burst()` sends long prompts and waits for them."""
    rng, order = Random(seed), list(kinds)
    rng.shuffle(order)
    engine, api = server.pid("engine"), server.pid("api")
    rival = Competitor(0) if "competitor" in kinds else None
    told.begin = time.perf_counter_ns()
    for kind in order:
        if kind == "collection":
            os.kill(engine, COLLECT)
            time.sleep(0.6)
        elif kind == "pool":
            os.kill(engine, TAKE)
            time.sleep(0.6)
        elif kind == "competitor" and rival is not None:
            rival.run(rng.randint(40, 90) * 1_000_000)
        elif kind == "burst":
            burst()
        elif kind == "blocked":
            told.stops.append(_stop(api, rng.uniform(0.15, 0.4)))
        time.sleep(SPACE_S * rng.uniform(0.7, 1.3))
    told.end = time.perf_counter_ns()
    if rival is not None:
        told.slices = rival.close()


def _stop(pid: int, seconds: float) -> tuple[int, int]:
    t0 = time.perf_counter_ns()
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)
    return t0, time.perf_counter_ns()


def truth(told: Told, alone: bool) -> Truth:
    """All that was planted, and what the machine took. alone: the engine's own thread runs the forward pass."""
    faults = [
        *(Planted("collection", "gc", (Window(c["t0"], c["t1"], c["t1"] - c["t0"]),)) for c in told.of("collection")),
        *_bursts(told), *_evictions(told),
        *(Planted("competitor", "os", (Window(a, b, b - a),)) for a, b in told.slices if b - a > NOISE_NS),
    ]  # fmt: skip
    return Truth(told.begin, told.end, tuple(faults), tuple(_foreign(told, alone)))


def _bursts(told: Told) -> list[Planted]:
    """What passes with a burst's prompts took beyond the passes before them."""
    found, usual = [], [1_000_000.0]
    for one in told.of("pass"):
        length = one["t1"] - one["t0"]
        if one["burst"]:
            planted = max(0, int(length - statistics.median(usual[-50:])))
            found.append(Planted("burst", "prefill", (Window(one["t0"], one["t1"], planted),)))
        elif one["tokens"] == one["rows"]:
            usual.append(length)
    return found


def _evictions(told: Told) -> list[Planted]:
    """Each victim's time away; and its recomputation when it is back, which is prefill to everybody."""
    found, gone, since = [], {}, [0]
    for line in told.lines:
        if line["what"] == "evict":
            gone[line["request"]] = line["t"]
        elif line["what"] == "back" and line["request"] in gone:
            t0, t1 = gone.pop(line["request"]), line["t"]
            found.append(Planted("pool", "preempt", (Window(t0, t1, t1 - t0, line["request"]),)))
            since.append(t1)
    for one in told.of("pass"):
        extra = one["tokens"] - one["rows"]
        if extra > 0 and not one["burst"] and min(one["t0"] - t for t in since if t <= one["t0"]) < RECOMPUTED_NS:
            planted = (one["t1"] - one["t0"]) * extra // one["tokens"]
            found.append(Planted("recompute", "prefill", (Window(one["t0"], one["t1"], planted),)))
    return found


def _foreign(told: Told, alone: bool) -> Iterable[Window]:
    """Time off the CPU, in passes and (where the engine's thread runs them) between them, that nothing explains."""
    points = [(one["t0"], one["cpu0"], one["t1"], one["cpu1"]) for one in told.of("pass")]
    if alone:
        marks = sorted(
            [(m["t"], m["cpu"]) for m in told.of("mark")]
            + [(t, c) for a, b, d, e in points for t, c in ((a, b), (d, e))]
        )
        points = [(*a, *b) for a, b in pairwise(marks)]
    for t0, c0, t1, c1 in points:
        lost = t1 - t0 - (c1 - c0)
        lost -= sum(min(b, t1) - max(a, t0) for a, b in told.slices if a < t1 and t0 < b)
        lost -= int(USUAL_SHARE * (t1 - t0))
        if lost > USUAL_NS:
            yield Window(t0, t1, lost)
