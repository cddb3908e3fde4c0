"""Section 3.3 the slow way: the first token's wait, and gaps as the frontend and the client saw them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from slow import Parts, Slow, SlowGap, primary_of
from slow_cost import Baseline
from slow_log import Log

__all__ = ["Wait", "deliveries", "first_tokens"]


@dataclass
class Wait:
    """A request's way from arrival to its first emission."""

    request: str
    t0: int
    t1: int
    parts: Parts
    admitted: bool


def first_tokens(events: list[dict[str, Any]], baseline: Baseline = None) -> list[Wait]:
    """TTFT by cause, for every request whose arrival and first emission are known."""
    log = Log(events)
    slow = Slow(log, "full", baseline)
    arrive = {row["request"]: row["t"] for row in log.of["arrive"]}
    admits: dict[str, int] = {}
    for row in log.of["admit"]:
        admits[row["request"]] = min(row["t"], admits.get(row["request"], row["t"]))
    out = []
    for request, t0 in arrive.items():
        if not log.emits_of.get(request):
            continue
        s = log.emits_of[request][0][0]
        t1 = slow.stamps[s]
        admit = min(max(admits.get(request, t0), t0), t1)
        parts: Parts = defaultdict(int)
        for a, b in slow.windows:
            if t0 <= a < admit:
                own = any(x.name == "tok" and x.request == request and x.t0 <= a < x.t1 for x in slow.segments)
                parts["tok" if own else "queue"] += b - a
        for cause, ns in slow.charge(request, admit, t1, -1, s, whole_tok=True)[None].items():
            parts[cause] += ns
        out.append(Wait(request, t0, t1, {k: v for k, v in parts.items() if v}, request in admits))
    return out


def deliveries(
    events: list[dict[str, Any]], baseline: Baseline = None, rules: str = "full"
) -> dict[str, list[SlowGap]]:
    """The gaps of each boundary beyond the engine, cut at the first token's emission and its frontend stamp."""
    log = Log(events)
    slow = Slow(log, rules, baseline)
    told: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in sorted(log.of["deliver"], key=lambda row: row["t"]):
        if row["tokens"] > 0:
            told[row["boundary"], row["request"]].append((row["t"], row["tokens"]))
    out: dict[str, list[SlowGap]] = defaultdict(list)
    for (boundary, request), rows in told.items():
        first = 0
        for (t0, before), (t1, tokens) in pairwise(rows):
            first += before
            k = holder(log.emits_of[request], first)
            if k is None:
                continue
            s = log.emits_of[request][k][0]
            p = log.emits_of[request][k - 1][0] if k else -1
            e = min(max(slow.stamps[s], t0), t1)
            stamps = told.get(("frontend", request), [])
            f = holder(stamps, first)
            cut = t1 if f is None else min(max(stamps[f][0], e), t1)
            parts = dict(slow.charge(request, t0, e, p, s)[None])
            parts |= {"frontend": cut - e, "network": t1 - cut}
            parts = {c: ns for c, ns in parts.items() if ns}
            steps = log.emits[max(p, 0)].step, log.emits[s].step
            out[boundary].append(SlowGap(request, *steps, t0, t1, tokens, parts, primary_of(parts, t1 - t0)))
    return out


def holder(rows: list[tuple[int, int]], token: int) -> int | None:
    """Which of (anything, tokens) rows holds the token of this number, counted from 0."""
    for k, (_, tokens) in enumerate(rows):
        if token < tokens:
            return k
        token -= tokens
    return None
