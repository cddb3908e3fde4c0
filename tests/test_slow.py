"""The slow partition must be right before anything is held against it: scenarios, hand-made cases, conservation."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import plain_post
from cases import CASES
from cases.build import Case, Gap
from randomlog import KINDS, random_log
from slow import SlowGap, partition
from slow_edges import deliveries, first_tokens
from slow_log import Log

SCENARIOS = sorted((Path(__file__).parent / "data" / "scenarios").glob("*.jsonl"))
Rules = Literal["full", "post"]
RULES: tuple[Rules, ...] = ("full", "post")
Key = tuple[str, int, int]


def scenario(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return events, json.loads(path.with_suffix(".expected.json").read_text())


def by_gap(gaps: list[SlowGap]) -> dict[Key, tuple[str, dict[str, int]]]:
    return {(g.request, g.t0, g.t1): (g.primary, {k: ns for k, ns in g.parts.items() if ns}) for g in gaps}


def wanted(gaps: list[Gap]) -> dict[Key, tuple[str, dict[str, int]]]:
    return {(g.request, g.t0, g.t1): (g.primary, {k: ns for k, ns in g.parts.items() if ns}) for g in gaps}


def expected(rows: list[Mapping[str, Any]]) -> dict[Key, tuple[str, dict[str, int]]]:
    return {(r["request"], r["t0_ns"], r["t1_ns"]): (r.get("primary", ""), r["parts_ns"]) for r in rows}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenarios(path: Path) -> None:
    events, want = scenario(path)
    assert by_gap(partition(events, "full")) == expected(want["gaps"])
    assert by_gap(partition(events, "post")) == expected(want["post"])
    waits = {wait.request: wait.parts for wait in first_tokens(events)}
    assert waits == {row["request"]: row["parts_ns"] for row in want.get("ttft", [])}
    for boundary, rows in want.get("deliveries", {}).items():
        got = {key: parts for key, (_, parts) in by_gap(deliveries(events)[boundary]).items()}
        assert got == {key: parts for key, (_, parts) in expected(rows).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases(case: Case) -> None:
    full = partition(case.events, "full", case.fit)
    assert by_gap(full) == wanted(case.full), case.why
    assert by_gap(partition(case.events, "post")) == wanted(case.post), case.why
    if case.context is not None:
        totals: dict[str, int] = {}
        for g in full:
            for cause, ns in g.whole_context().items():
                totals[cause] = totals.get(cause, 0) + ns
        assert totals == case.context, case.why
    if case.ttft:
        waits = {wait.request: wait.parts for wait in first_tokens(case.events, case.fit)}
        assert waits == case.ttft, case.why
    for boundary, gaps in case.deliveries.items():
        assert by_gap(deliveries(case.events, case.fit)[boundary]) == wanted(gaps), case.why


def test_cases_add_up() -> None:
    """The hand-made answers themselves conserve time."""
    for case in CASES:
        for g in case.full + case.post + [g for gaps in case.deliveries.values() for g in gaps]:
            assert sum(g.parts.values()) == g.t1 - g.t0, case.name


@pytest.mark.parametrize("kind", KINDS)
def test_random_logs_reconcile(kind: str) -> None:
    for seed in range(40):
        events = random_log(random.Random(f"{kind} {seed}"), kind)
        found = [g for rules in RULES for g in partition(events, rules)]
        found += [g for gaps in deliveries(events).values() for g in gaps]
        for g in found:
            assert sum(g.parts.values()) == g.t1 - g.t0
            assert min(g.parts.values(), default=0) >= 0
        for wait in first_tokens(events):
            assert sum(wait.parts.values()) == wait.t1 - wait.t0


def test_the_plain_post_on_the_posts_own_log() -> None:
    """Every part of every gap, and the shares of the tail, as the post's own code printed them."""
    path = Path(__file__).parent / "data" / "golden" / "baseline__s1.npz"
    z = np.load(path, allow_pickle=False)
    rows = np.load(path.with_suffix(".parts.npz"), allow_pickle=False)["rows"]
    want = json.loads(path.with_suffix(".expected.json").read_text())
    gaps = plain_post.plain_gaps(*(z[k].tolist() for k in ("steps", "segs", "gcs", "emissions", "evictions")))
    parts = np.array([[g["parts"][label] for label in plain_post.LABELS] for g in gaps])
    assert [(g["request"], g["step"]) for g in gaps] == [(int(r), int(s)) for r, s in rows[:, :2]]
    assert np.abs(parts - rows[:, 4:]).max() < 1e-6
    length = np.array([g["gap_ms"] for g in gaps])
    tail = length >= np.percentile(length, 99)
    for share, chosen in ((want["tail_share"], tail), (want["all_share"], tail | True)):
        got = parts[chosen].sum(axis=0) / length[chosen].sum()
        assert dict(zip(plain_post.LABELS, got, strict=True)) == pytest.approx(share, abs=1e-9)


def test_slow_agrees_with_the_plain_post() -> None:
    """Two transcripts of the post, one in integers and one in floats, on logs that both can read."""
    for seed in range(60):
        events = without_nesting(random_log(random.Random(f"plain {seed}"), "post"))
        baseline = {"fixed_ns": 5, "row_ns": 1, "kv_token_ns": 0}
        log = Log(events)
        plain = plain_post.plain_gaps(**arrays(log), baseline=(baseline["row_ns"], baseline["fixed_ns"]))
        slow = partition(events, "post", baseline)
        assert len(plain) == len(slow)
        for p, s in zip(plain, slow, strict=True):
            for label, ms in p["parts"].items():
                ns = s.parts.get("fwd" if label == "kernel" else label, 0)
                assert abs(ms - ns) < 1 + len(log.steps), (seed, label, p, s)


def without_nesting(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Segments apart, pauses merged and of the path: what the post's own logs look like."""
    out: list[dict[str, Any]] = []
    for event in events:
        a, b = event.get("t0", 0), event.get("t1", 0)
        same = [o for o in out if o.get("e") == event.get("e")]
        if event.get("e") in ("segment", "gc") and any(o["t0"] < b and a < o["t1"] for o in same):
            continue
        if event.get("process") != "api":
            out.append(event)
    return out


def arrays(log: Log) -> dict[str, Any]:
    """A log in the post's arrays, a nanosecond taken for a millisecond, so that small logs keep their digits."""
    ns = 1e-3
    ids = {step: i for i, step in enumerate(log.steps)}
    names = {"tok": 0, "swap": 1, "prefill": 2, "decode": 3}
    requests = {r: i for i, r in enumerate(log.emits_of)}
    steps = []
    for s in log.steps.values():
        size = s.decode_tokens if s.padded is None else s.padded
        steps.append((s.t0 * ns, s.t1 * ns, s.decode_tokens, 0, {"eager": 0, "captured": size or 1}.get(s.graph, -1)))
    return {
        "steps": steps,
        "segments": [(ids[s.step], names[s.name], s.t0 * ns, s.t1 * ns) for s in log.segments],
        "pauses": [(a * ns, b * ns) for a, b in log.pauses],
        "emissions": [
            (requests[r], log.emits[i].t * ns, ids[log.emits[i].step])
            for r, rows in log.emits_of.items()
            for i, _ in rows
        ],
        "evictions": [
            (requests[r], a * ns, float("nan") if b >= 1 << 62 else b * ns)
            for r, rows in log.evicted.items()
            if r in requests
            for a, b in rows
        ],
    }
