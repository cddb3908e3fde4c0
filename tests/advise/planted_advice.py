"""Small logs in which one cause owns the tail, of any engine with any settings. Numbers are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import stallbook as sb
from cases.build import MS, dec, deliver, evict, gc, hold, scaled, seg, step
from stallbook.partition import Partition
from test_partition import opened

Event = dict[str, Any]
RECORDS = ["segments", "gc", "evictions", "graph", "members", "os"]
MANY = dict.fromkeys(["a", "b", "c", *(f"r{i}" for i in range(37))], 1)
"""40 requests."""


def _calm(i: int, t: float, to: str) -> list[Event]:
    return step(i, t, t + 10, dec(t, t + 10), n=len(to), emit=t + 10, to=to)


def middle(cause: str) -> list[Event]:
    """From 100 to 210: something of `cause` that takes 100, and a usual step."""
    match cause:
        case "gc":
            return [*step(10, 100, 210, dec(100, 210), n=3, emit=210, to="abc"), *gc(105, 205)]
        case "graph":
            return step(10, 100, 210, dec(100, 210), n=40, graph="eager", emit=210, to=MANY)
        case "prefill":
            chunk = seg("prefill", 100, 200)
            return step(10, 100, 210, chunk, dec(200, 210), n=3, prefill=2000, emit=210, to="abc")
        case "work":
            return step(10, 100, 210, seg("sched", 100, 130), dec(130, 210), n=3, emit=210, to="abc")
        case "os":
            return step(10, 100, 210, dec(100, 210, 100), n=3, emit=210, to="abc")
        case "slow":
            return step(10, 100, 210, dec(100, 210), n=3, emit=210, to="abc")
        case "residual":
            return step(10, 100, 210, dec(200, 210), n=3, emit=210, to="abc")
        case "preempt":
            others = [e for i in range(10) for e in _calm(10 + i, 100 + 10 * i, "bc")]
            return [*others, *step(20, 200, 210, dec(200, 210), n=3, emit=210, to="abc"), *evict("a", 100, 200)]
        case "frontend":
            slow = [e for r in "abc" for e in deliver(r, "frontend", 100, 300)]
            return [*step(10, 100, 110, dec(100, 110), n=3, emit=110, to="abc"), *slow]
        case hold_of if hold_of.startswith("other:"):
            others = [e for i in range(10) for e in _calm(10 + i, 100 + 10 * i, "bc")]
            end = step(20, 200, 210, dec(200, 210), n=3, emit=210, to="abc")
            return [*others, *end, *hold("a", hold_of.removeprefix("other:"), 100, 200)]
        case name:
            return step(10, 100, 210, seg(name, 100, 200), dec(200, 210), n=3, emit=210, to="abc")


def planted(
    folder: Path, cause: str, engine: str = "stallbook demo", config: Mapping[str, Any] | None = None,
    records: list[str] | None = None, rules: Any = "full", base: float = 10,
) -> Partition:  # fmt: skip
    """Ten calm steps, the cause, ten calm steps."""
    head: Event = {
        "stallbook": 1, "engine": engine, "records": RECORDS if records is None else records,
        "config": dict(config or {}), "baseline": {"fixed_ns": base * MS, "row_ns": 0, "kv_token_ns": 0},
    }  # fmt: skip
    before = [e for i in range(10) for e in _calm(i, 10 * i, "abc")]
    after = [e for i in range(10) for e in _calm(30 + i, 210 + 10 * i, "abc")]
    events = [head, *(scaled(e, MS) for e in (*before, *middle(cause), *after))]
    return sb.partition(opened(events, folder), rules)
