"""Short ways to write a log and what must come out of it. Numbers are milliseconds unless the case says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
MS = 1_000_000
TIMES = ("t", "t0", "t1", "run_delay_ns")


@dataclass(frozen=True)
class Gap:
    """What one gap must come to."""

    request: str
    t0: int
    t1: int
    primary: str
    parts: dict[str, int]


@dataclass(frozen=True)
class Case:
    """A log and its answers, in nanoseconds. `post` None: the same as `full`.

    `fit`: what a fit under `full` comes to, for an implementation that does not fit; the log itself has no baseline.
    """

    name: str
    why: str
    events: list[Event]
    full: list[Gap]
    post: list[Gap]
    context: dict[str, int] | None = None
    ttft: dict[str, dict[str, int]] = field(default_factory=dict)
    deliveries: dict[str, list[Gap]] = field(default_factory=dict)
    fit: dict[str, Any] | None = None


def case(
    name: str,
    why: str,
    rows: list[list[Event]],
    full: list[Gap],
    post: list[Gap] | None = None,
    *,
    base: tuple[float, float, float] | None = (10, 0, 0),
    unit: int = MS,
    context: dict[str, float] | None = None,
    ttft: dict[str, dict[str, float]] | None = None,
    deliveries: dict[str, list[Gap]] | None = None,
    fit: tuple[float, float, float] | None = None,
) -> Case:
    """A case, its times scaled to nanoseconds."""
    head: Event = {"stallbook": 1, "engine": "case", "boundary": "engine", "config": {"title": name}}
    head["records"] = ["segments", "gc", "evictions", "graph", "members", "os", "device", "holds", "kv_tokens"]
    if base is not None:
        head["baseline"] = line(base, unit)
    events = [head, *(scaled(event, unit) for row in rows for event in row)]
    full = [grown(g, unit) for g in full]
    return Case(
        name,
        why,
        events,
        full,
        full if post is None else [grown(g, unit) for g in post],
        None if context is None else {k: round(v * unit) for k, v in context.items()},
        {r: {colon(k): round(v * unit) for k, v in parts.items()} for r, parts in (ttft or {}).items()},
        {b: [grown(g, unit) for g in gaps] for b, gaps in (deliveries or {}).items()},
        None if fit is None else line(fit, unit),
    )


def line(base: tuple[float, float, float], unit: int) -> dict[str, float]:
    return dict(zip(("fixed_ns", "row_ns", "kv_token_ns"), (x * unit for x in base), strict=True))


def scaled(event: Event, unit: int) -> Event:
    return {k: round(v * unit) if k in TIMES and v is not None else v for k, v in event.items()}


def grown(g: Gap, unit: int) -> Gap:
    parts = {colon(k): round(ns * unit) for k, ns in g.parts.items()}
    return Gap(g.request, round(g.t0 * unit), round(g.t1 * unit), g.primary, parts)


def colon(cause: str) -> str:
    return cause.replace("other_", "other:")


def gap(request: str, t0: float, t1: float, primary: str, **parts: float) -> Gap:
    """`other_kv=3` stands for `other:kv`."""
    return Gap(request, t0, t1, primary, parts)  # type: ignore[arg-type]  # scaled by `case`


def start(t: float = 0, requests: str = "a") -> list[Event]:
    """Step 0: every request's first token at `t`, and nothing else."""
    return step(0, t, t, n=0, graph=None, emit=t, to=requests)


def step(
    id: int,  # noqa: A002
    t0: float,
    t1: float,
    *segments: Event,
    n: int = 1,
    graph: str | None = "captured",
    padded: int | None = None,
    prefill: int = 0,
    emit: float | None = None,
    to: str | dict[str, int] = "a",
    members: str | None = None,
    delay: float | None = None,
    kv: int | None = None,
) -> list[Event]:
    """A step with its segments and its emission, one letter a request."""
    row: Event = {"e": "step", "id": id, "t0": t0, "t1": t1, "decode_tokens": n, "prefill_tokens": prefill}
    maybe = {"graph": graph, "padded": padded, "run_delay_ns": delay, "kv_tokens": kv}
    row |= {k: v for k, v in maybe.items() if v is not None}
    if members is not None:
        row["members"] = list(members)
    out = [row, *(segment | {"step": id} for segment in segments)]
    if emit is not None:
        tokens = to if isinstance(to, dict) else dict.fromkeys(to, 1)
        out.append({"e": "emit", "step": id, "t": emit, "tokens": tokens})
    return out


def seg(
    name: str, t0: float, t1: float, delay: float | None = None, of: str | None = None, lane: str = "host"
) -> Event:
    out: Event = {"e": "segment", "name": name, "lane": lane, "t0": t0, "t1": t1, "request": of}
    return out if delay is None else out | {"run_delay_ns": delay}


def dec(t0: float, t1: float, delay: float | None = None) -> Event:
    return seg("decode", t0, t1, delay)


def dev(t0: float, t1: float, name: str = "decode") -> Event:
    return seg(name, t0, t1, lane="device")


def gc(t0: float, t1: float, process: str = "engine") -> list[Event]:
    return [{"e": "gc", "t0": t0, "t1": t1, "generation": 2, "process": process}]


def evict(request: str, t: float, until: float | None = None) -> list[Event]:
    out = [{"e": "evict", "request": request, "t": t, "mode": "swap", "lost_tokens": 0}]
    return out if until is None else [*out, {"e": "readmit", "request": request, "t": until}]


def readmit(request: str, t: float) -> list[Event]:
    return [{"e": "readmit", "request": request, "t": t}]


def hold(request: str, kind: str, t0: float, t1: float | None) -> list[Event]:
    return [{"e": "hold", "request": request, "kind": kind, "t0": t0, "t1": t1}]


def arrive(request: str, t: float, admit: float | None = None) -> list[Event]:
    out: list[Event] = [{"e": "arrive", "request": request, "t": t, "prompt_tokens": 8, "max_tokens": 9}]
    return out if admit is None else [*out, {"e": "admit", "request": request, "t": admit}]


def deliver(request: str, boundary: str, *stamps: float, tokens: int = 1) -> list[Event]:
    return [{"e": "deliver", "request": request, "t": t, "tokens": tokens, "boundary": boundary} for t in stamps]
