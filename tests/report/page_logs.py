"""Logs whose page has something in every section."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stallbook.log import open_run
from stallbook.partition import Partition, partition

MS = 1_000_000
Lines = list[dict[str, Any]]


def partitioned(folder: Path, lines: Lines, name: str = "run", **head: Any) -> Partition:
    path = folder / f"{name}.jsonl"
    records = ["segments", "gc", "evictions", "graph", "members"]
    header = {"stallbook": 1, "engine": "made 1", "records": records, **head}
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)), encoding="utf-8")
    return partition(open_run(path))


def busy(steps: int = 40, requests: int = 3, name: str = "r") -> Lines:
    """Steps of 10 ms for some requests, one in ten with a prefill of 60 ms before it."""
    names = [f"{name}{i}" for i in range(requests)]
    lines: Lines = [{"e": "arrive", "request": r, "t": 0, "prompt_tokens": 50} for r in names]
    lines += [{"e": "admit", "request": r, "t": MS} for r in names]
    now = 2 * MS
    for i in range(steps):
        now = step(lines, i, now, names, prefill=60 if i % 10 == 5 else 0)
    return lines


def step(
    lines: Lines, i: int, now: int, names: list[str], *, prefill: int = 0, tok: int = 0, eager: bool = False
) -> int:
    """Append one step; returns its end."""
    t0, at = now, now
    told: Lines = []
    for segment, ms in (("tok", tok), ("prefill", prefill), ("decode", 26 if eager else 10)):
        if ms:
            told.append({"e": "segment", "step": i, "name": segment, "t0": at, "t1": at + ms * MS})
            at += ms * MS
    rows = len(names)
    graph = {"graph": "eager"} if eager else {"graph": "captured", "padded": 2 ** (rows - 1).bit_length()}
    counts = {"decode_tokens": rows, "prefill_tokens": prefill, "kv_tokens": 100 * rows + i}
    lines.append({"e": "step", "id": i, "t0": t0, "t1": at, **graph, **counts, "members": names})
    lines += told
    lines.append({"e": "emit", "step": i, "t": at, "tokens": dict.fromkeys(names, 1)})
    return at


def overloaded() -> Lines:
    """Evictions, a collection, prefills, tokenizing and fallback steps; `late` queues, `b` is evicted for long."""
    names = ["a", "b", "c"]
    lines: Lines = [{"e": "arrive", "request": r, "t": 0, "prompt_tokens": 50} for r in names]
    lines += [{"e": "admit", "request": r, "t": MS} for r in names]
    lines.append({"e": "arrive", "request": "late", "t": 2 * MS, "prompt_tokens": 80})
    now = 3 * MS
    for i in range(160):
        if i == 60:
            lines.append({"e": "evict", "request": "b", "t": now, "mode": "swap"})
        if i == 100:
            lines.append({"e": "readmit", "request": "b", "t": now})
        if i == 70:
            lines.append({"e": "admit", "request": "late", "t": now})
        batch = [n for n in (*names, "late") if (n != "b" or not 60 <= i < 100) and (n != "late" or i >= 70)]
        if i == 40:
            lines.append({"e": "gc", "t0": now + MS, "t1": now + 151 * MS, "generation": 2, "process": "engine"})
            now += 152 * MS
        how = {"prefill": 130 if i in (20, 70) else 0, "tok": 110 if i == 120 else 0, "eager": i % 40 == 30}
        now = step(lines, i, now, batch, **how)  # type: ignore[arg-type]
    return lines


def hostile(name: str) -> Lines:
    """A log whose every name is `name`."""
    lines = busy(steps=60, requests=2, name=name)
    for line in [one for one in lines if one["e"] == "step"]:
        if line["id"] == 30:
            window = {"t0": line["t0"], "t1": line["t1"] - 10 * MS}
            lines.append({"e": "hold", "request": f"{name}0", "kind": name, **window})
    lines.append({"e": "gc", "t0": 0, "t1": MS, "generation": 0, "process": name})
    first = next(line for line in lines if line["e"] == "segment" and line["name"] == "prefill")
    first["name"] = name
    return lines
