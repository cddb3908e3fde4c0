"""A small run of two requests, and what a client saw of it, in the formats that a client may write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stallbook.log import open_run
from stallbook.run import Run

MS = 1_000_000
UUID = "3f1c2d3e-0000-4000-8000-00000000000a"
OTHER = "3f1c2d3e-0000-4000-8000-00000000000b"


def engine(folder: Path, names: tuple[str, ...] = (f"cmpl-{UUID}-0-0123abcd", f"chatcmpl-{OTHER}-89abcdef")) -> Run:
    """Five steps of 10 ms, each with one token for each request, at 10, 20, ... 50 ms; frontend stamps 1 ms later."""
    lines: list[dict[str, Any]] = [
        {"stallbook": 1, "engine": "test", "boundary": "engine", "records": ["segments"], "config": {}}
    ]
    lines += [{"e": "arrive", "request": name, "t": 1 * MS} for name in names]
    lines += [{"e": "admit", "request": name, "t": 1 * MS} for name in names]
    for k in range(5):
        end = (k + 1) * 10 * MS
        lines.append({"e": "step", "id": k, "t0": end - 9 * MS, "t1": end, "decode_tokens": len(names)})
        lines.append({"e": "segment", "step": k, "name": "decode", "t0": end - 8 * MS, "t1": end - MS})
        lines.append({"e": "emit", "step": k, "t": end, "tokens": dict.fromkeys(names, 1)})
        lines += [
            {"e": "deliver", "request": name, "t": end + MS, "tokens": 1, "boundary": "frontend"} for name in names
        ]
    path = folder / "engine.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return open_run(path)


def simple(name: str, *chunks: tuple[float, int] | tuple[float], start: float | None = 0.5) -> dict[str, Any]:
    """A line of the simple form, in ms; a chunk without tokens does not state them."""
    told = [{"t": int(c[0] * MS)} | ({"tokens": c[1]} if len(c) > 1 else {}) for c in chunks]
    return {"request": name, "chunks": told} | ({} if start is None else {"start": int(start * MS)})


def response(t: float, *pieces: dict[str, Any] | str) -> dict[str, Any]:
    """A server-sent event as AIPerf keeps it."""
    packets = [{"name": "data", "value": p if isinstance(p, str) else json.dumps(p)} for p in pieces]
    return {"perf_ns": int(t * MS), "packets": packets}


def piece(text: str, ids: list[int] | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of the completions endpoint."""
    return {"choices": [{"index": 0, "text": text, **({} if ids is None else {"token_ids": ids})}], **more}


def said(content: str, **more: Any) -> dict[str, Any]:
    """A chunk of the chat endpoint."""
    return {"choices": [{"index": 0, "delta": {"content": content, **more}}]}


def aiperf(name: str | None, *responses: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A line of AIPerf's raw export, sent at 0.5 ms."""
    meta = {
        "session_num": 0,
        "x_request_id": name,
        "request_start_ns": 1_790_000_000_000_000_000,
        "was_cancelled": False,
    }
    meta |= {"worker_id": "worker_1", "benchmark_phase": "profiling"}
    line = {"metadata": meta, "start_perf_ns": MS // 2, "payload": {"prompt": "secret"}, "status": 200}
    return line | {"responses": list(responses)} | more


def write(path: Path, *lines: dict[str, Any]) -> Path:
    """JSON Lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
