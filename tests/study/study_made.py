"""Made-up studies: results lines with planted numbers, and a launcher that runs nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stallbook.demo import Settings
from stallbook.study.plan import Cell
from stallbook.study.run import Tools
from stallbook.study.rungs import RUNGS

CAUSES = ("prefill", "preempt", "graph", "gc", "tok", "fwd", "residual")


def report(p50: float, p99: float, p999: float, worst: float, share: Sequence[float], **counts: Any) -> dict[str, Any]:
    """The part of a run's report that the study reads."""
    return {
        "itl_ms": {"p50": p50, "p90": p50 * 2, "p99": p99, "p999": p999, "max": worst},
        "ttft_ms": {"p50": counts.get("ttft", 40.0), "p99": counts.get("ttft", 40.0) * 6},
        "ttft": counts.get("first"),
        "tokens_per_s": counts.get("tokens_per_s", 2000.0),
        "tail": {"share": dict(zip(CAUSES, share, strict=True))},
        "counters": {
            "gc": {"0": counts.get("gc0", 390), "1": 35, "2": counts.get("gc2", 3)},
            "gen2_serving_ms": counts.get("pauses", [150.3, 210.0]),
            "gen2_startup_ms": counts.get("startup", []),
            "eager_steps": counts.get("eager", 400),
            "preemptions": counts.get("preemptions", 140),
        },
    }


def line(rung: str, seed: int, body: dict[str, Any], probe_ns: float | None = 50_000.0) -> dict[str, Any]:
    """A results line."""
    probe = {"samples": 240 if probe_ns else 0, "median_ns": probe_ns, "p10_ns": probe_ns, "p90_ns": probe_ns}
    return {"rung": rung, "seed": seed, "log": f"{rung}__s{seed}.stall", "post": body, "full": body, "probe": probe}


def header(**changes: Any) -> dict[str, Any]:
    """A study.json."""
    settings = {
        "rungs": [rung.slug for rung in RUNGS],
        "seeds": [1, 2, 3, 4, 5],
        "seconds": 60.0,
        "rate": "auto",
        "overload": None,
    }
    return {
        "stallbook_study": 1,
        "settings": {**settings, **changes.pop("settings", {})},
        "rate": 9.8,
        "auto_rate": 9.8,
        "auto_rates": [9.7, 9.8, 10.1],
        "past_capacity": False,
        "order": "",
        "machine": {"cpu": "Made CPU @ 2.80GHz", "cores": 2, "system": "Linux"},
        "versions": {"stallbook": "0.1.0", "python": "3.13.1", "numpy": "2.3.0"},
        "started": "2026-01-02T03:04:05Z",
        **changes,
    }


def study(drift: float = 0.04) -> list[dict[str, Any]]:
    """A whole study of seven rungs and five seeds in which the fixes work as they should."""
    rng, lines = random.Random(7), []
    tails = {"baseline": 950, "gc-freeze": 581, "compact-history": 258, "graphs-to-48": 234}
    tails |= {"budget-256": 149, "tokenize-off-loop": 133, "admit-watermark": 50}
    for level, rung in enumerate(RUNGS):
        for seed in range(1, 6):
            p999 = tails[rung.slug] * rng.uniform(0.7, 1.4)
            gc, graph, tok = 0.03 * (level < 2), 0.004 * (level < 3), 0.04 * (level < 5)
            preempt = 0.0004 if level == 6 else rng.uniform(0.3, 0.6)
            prefill = 0.12 if level > 3 else 0.25
            share = [prefill, preempt, graph, gc, tok, 0.0, 0.005]
            share[5] = 1.0 - sum(share)
            body = report(
                *(13.0 * rng.uniform(0.9, 1.1), (47.0 - 3 * level) * rng.uniform(0.95, 1.05), p999, p999 * 9, share),
                ttft=40.0 * (1 + 9 * (level == 6)) * rng.uniform(0.8, 1.3),
                gc0=390 if level < 2 else 30,
                gc2=3 if level < 2 else 1,
                pauses=[] if level >= 2 else [60.0, 31.5] if level else [150.3, 210.0],
                startup=[118.0 + seed] if level else [],
                eager=0 if level >= 3 else rng.randint(0, 983),
                preemptions=rng.randint(0, 7) if level == 6 else rng.randint(23, 346),
                first=waited(level, seed),
            )
            lines.append(line(rung.slug, seed, body, 50_000.0 * rng.uniform(1.0, 1.0 + drift)))
    return lines


def waited(level: int, seed: int) -> dict[str, Any]:
    """First tokens of 400 requests: only the last rung keeps them queueing for blocks."""
    queue = 300.0 + seed if level == 6 else 20.0 + seed
    means = {"prefill": 9.0, "preempt": 0.1, "gc": 0.0, "tok": None if level > 4 else 5.0, "fwd": 12.0, "queue": queue}
    blocked = {"nothing on record": 2e3, "KV blocks": 400 * (queue - 5), "the limit of sequences": 0.0}
    return {"mean_ms": means, "waits": 400, "blocked_ms": blocked}


class Silent:
    """A watcher that keeps what it was told."""

    def __init__(self, on_finish: Callable[[Cell], None] | None = None) -> None:
        self.done: list[str] = []
        self.kept = self.lost = 0
        self._on_finish = on_finish

    def calibrating(self, number: int, of: int) -> None:
        pass

    def planned(self, header: Any, done: int, total: int, lost: int) -> None:
        self.kept, self.lost = done, lost

    def running(self, cell: Cell, seconds: float) -> None:
        pass

    def finished(self, cell: Cell, line: Any, seconds: float) -> None:
        self.done.append(cell.name)
        if self._on_finish:
            self._on_finish(cell)


def fake_tools(launched: list[tuple[str, Settings]] | None = None) -> Tools:
    """Tools whose runs write a folder with their settings in it and take no time."""

    def launch(settings: Settings, out: Path, tick: Any) -> None:
        if launched is not None:
            launched.append((out.name, settings))
        out.mkdir()
        rate = 10.0 if settings.rate is None else settings.rate
        (out / "settings").write_text(json.dumps({**settings.as_dict(), "rate": rate}))
        if tick is not None:
            tick(0.5)

    def settings_in(log: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((log / "settings").read_text())
        return found

    def analyse(log: Path) -> dict[str, Any]:
        body = report(3.6, 29.0, 270.0, 3000.0, [0.2, 0.5, 0.0, 0.1, 0.1, 0.1, 0.0], seed=settings_in(log)["seed"])
        return {"post": body, "full": body, "probe": {"samples": 9, "median_ns": 50_000.0}}

    return Tools(
        launch=launch,
        rate_of=lambda log: float(settings_in(log)["rate"]),
        analyse=analyse,
        opens=lambda log: (log / "settings").exists(),
    )
