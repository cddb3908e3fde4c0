"""Five logs of one engine, a seed each, as a pipeline would record them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import stallbook as sb

MS = 1_000_000
STEPS = 40


def serve(folder: Path, slow_ms: int, seeds: range = range(1, 6), suffix: str = ".stall", **head: Any) -> list[Path]:
    """Two requests, steps of 10 ms; every tenth also holds a prefill of `slow_ms` or, by the seed, a bit more."""
    folder.mkdir()
    told = []
    for seed in seeds:
        records = ["segments", "gc", "evictions", "graph"]
        config = {"seed": seed, "rate": 5, "max_num_seqs": 2, **head.pop("config", {})}
        header = {"stallbook": 1, "engine": "made 1", "records": records, "config": config, **head}
        lines = [header, *({"e": "arrive", "request": r, "t": 0} for r in ("r1", "r2")), *_steps(seed, slow_ms)]
        log = folder / f"s{seed}.jsonl"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        told.append(folder / f"s{seed}{suffix}")
        if suffix != ".jsonl":
            sb.write(sb.open(log), told[-1])
            log.unlink()
    return told


def _steps(seed: int, slow_ms: int) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    now = MS
    for i in range(STEPS):
        slow = (slow_ms * MS + seed * MS // 50) if i % 10 == 5 else 0
        middle, end = now + slow, now + slow + 10 * MS + (seed * i % 3) * MS // 100
        told.append({"e": "step", "id": i, "t0": now, "t1": end, "graph": "captured", "padded": 2, "decode_tokens": 2})
        if slow:
            told.append({"e": "segment", "step": i, "name": "prefill", "t0": now, "t1": middle})
        told.append({"e": "segment", "step": i, "name": "decode", "t0": middle, "t1": end})
        told.append({"e": "emit", "step": i, "t": end, "tokens": {"r1": 1, "r2": 1}})
        now = end
    return told
