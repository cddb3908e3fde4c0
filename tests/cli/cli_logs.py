"""Small logs in the interchange format, for tests of commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MS = 1_000_000


def header(**changes: Any) -> dict[str, Any]:
    return {"stallbook": 1, "engine": "tiny 1", "records": ["segments", "gc", "evictions", "graph"], **changes}


def steps(n: int = 8, slow: int = 5) -> list[dict[str, Any]]:
    """Two requests and n steps of 10 ms; step `slow` holds a prefill and takes 60 ms."""
    told: list[dict[str, Any]] = [{"e": "arrive", "request": r, "t": 0} for r in ("r1", "r2")]
    now = 1 * MS
    for i in range(n):
        t0 = now
        middle = t0 + (50 * MS if i == slow else 0)
        end = middle + 10 * MS
        told.append(
            {"e": "step", "id": i, "t0": t0, "t1": end, "graph": "captured", "padded": 2, "decode_tokens": 2}
        )  # fmt: skip
        if middle > t0:
            told.append({"e": "segment", "step": i, "name": "prefill", "t0": t0, "t1": middle})
        told.append({"e": "segment", "step": i, "name": "decode", "t0": middle, "t1": end})
        told.append({"e": "emit", "step": i, "t": end, "tokens": {"r1": 1, "r2": 1}})
        now = end
    return told


def write(path: Path, lines: list[dict[str, Any]] | None = None, **head: Any) -> Path:
    every = [header(**head), *(steps() if lines is None else lines)]
    path.write_text("".join(json.dumps(line) + "\n" for line in every), encoding="utf-8")
    return path
