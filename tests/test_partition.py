"""The fast partition held against the slow one, against answers made by hand, and against the post's own figures."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plain_post
import stallbook as sb
from cases import CASES
from cases.build import Case
from randomlog import KINDS, random_log, to_jsonl
from slow import SlowGap, partition
from stallbook import waits
from stallbook.run import ExplicitBaseline, Run
from test_slow import RULES, SCENARIOS, Rules, expected, scenario, wanted

GOLDEN = sorted((Path(__file__).parent / "data" / "golden").glob("*__s[0-9].npz"))
SEEDS = int(os.environ.get("STALLBOOK_SEEDS", "200"))
"""Random logs of each kind; set the variable for a longer search."""
BATCH = 25
STAND_IN = {"fixed_ns": 4, "row_ns": 1, "kv_token_ns": 0}
"""The baseline where a log has none and `full` would have to fit one."""

Parts = dict[str, int]
Key = tuple[str, int, int, int]


def opened(events: list[dict[str, Any]], folder: Path) -> Run:
    path = folder / "log.jsonl"
    path.write_text(to_jsonl(events))
    return sb.open(path)


def fast_gaps(run: Run, p: Any) -> Iterator[tuple[Key, str, Parts, Parts]]:
    """Every gap of a fast partition: its key, primary cause, parts and context."""
    g, rows = p.gaps, p.row_of_gap
    table = p.parts()
    for i in range(len(g.t0)):
        parts = {c: int(ns) for c, ns in zip(p.causes, table[i], strict=True) if ns}
        context = {c: int(ns) for c, ns in zip(p.causes, p.context[rows[i]], strict=True) if ns}
        primary = p.causes[p.row_primary[rows[i]]] if p.row_primary[rows[i]] >= 0 else "clean"
        step = int(run.steps.id[g.step_to[i]])
        yield (run.requests.names[g.request[i]], step, int(g.t0[i]), int(g.t1[i])), primary, parts, context


def key_of(g: SlowGap) -> Key:
    return g.request, g.step_to, g.t0, g.t1


def check_against_slow(events: list[dict[str, Any]], rules: Rules, folder: Path) -> None:
    """Every gap of one log: the same gaps, exact sums, no negative part, every part within 2 ns, equal primaries."""
    explicit = events[0].get("baseline") or (STAND_IN if rules == "full" else None)
    run = opened(events, folder)
    p = sb.partition(run, rules=rules, baseline=ExplicitBaseline(**explicit) if explicit else None)
    slow = {key_of(g): g for g in partition(events, rules, explicit)}
    fast = list(fast_gaps(run, p))
    assert {key for key, *_ in fast} == set(slow)
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
    for key, primary, parts, context in fast:
        want = slow[key]
        assert sum(parts.values()) == want.t1 - want.t0
        assert min(parts.values(), default=0) >= 0
        # A fitted line may floor to another nanosecond, once an eager step.
        slack = 2 if explicit else 2 + sum(e.get("graph") == "eager" for e in events)
        assert close(parts, want.parts, slack), (key, parts, want.parts)
        assert close(context, want.whole_context(), 2 * slack), (key, context, want.context)
        if parts == want.parts:
            assert primary == want.primary, (key, parts)
    assert p.reconcile.skipped_steps_unexplained == sum(g.skipped for g in slow.values())
    assert p.reconcile.gaps_skipping == sum(g.skipped > 0 for g in slow.values())


def close(a: Parts, b: Parts, slack: int) -> bool:
    return all(abs(a.get(c, 0) - b.get(c, 0)) <= slack for c in a.keys() | b.keys())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", range(0, SEEDS, BATCH))
def test_random_logs(kind: str, batch: int, tmp_path: Path) -> None:
    for seed in range(batch, min(batch + BATCH, SEEDS)):
        events = random_log(random.Random(f"{kind} {seed}"), kind)
        for rules in RULES:
            try:
                check_against_slow(events, rules, tmp_path)
            except Exception as error:
                error.add_note(f"random_log(random.Random('{kind} {seed}'), '{kind}') under {rules}")
                raise


@pytest.mark.parametrize("name", ["mixed 1142", "everything 649", "everything 728"])
def test_logs_that_a_longer_search_found(name: str, tmp_path: Path) -> None:
    """Mixed steps whose shares add up over a gap; an interval of no length where an eviction cuts a hold off."""
    for rules in RULES:
        check_against_slow(random_log(random.Random(name), name.split()[0]), rules, tmp_path)


def whole(run: Run, p: Any) -> dict[tuple[str, int, int], tuple[str, Parts]]:
    return {(r, t0, t1): (primary, parts) for (r, _, t0, t1), primary, parts, _ in fast_gaps(run, p)}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenarios(path: Path) -> None:
    _, want = scenario(path)
    run = sb.open(path)
    for rules in RULES:
        assert whole(run, sb.partition(run, rules=rules)) == expected(want["gaps" if rules == "full" else "post"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases(case: Case, tmp_path: Path) -> None:
    run = opened(case.events, tmp_path)
    for rules in RULES:
        p = sb.partition(run, rules=rules)
        want = wanted(case.full if rules == "full" else case.post)
        if rules == "full" and case.fit is not None:  # fitted in floats: the last nanosecond is free
            got = whole(run, p)
            assert got.keys() == want.keys()
            assert all(close(got[k][1], want[k][1], 2) for k in want), case.why
        else:
            assert whole(run, p) == want, case.why
        if rules == "full" and case.context is not None:
            context = (p.context * p.row_weight[:, None]).sum(axis=0)
            totals = {c: int(ns) for c, ns in zip(p.causes, context, strict=True) if ns}
            assert totals == case.context, case.why


@pytest.mark.parametrize("case", [c for c in CASES if c.ttft or c.deliveries], ids=lambda case: case.name)
def test_cases_beyond_the_engine(case: Case, tmp_path: Path) -> None:
    run = opened(case.events, tmp_path)
    p = sb.partition(run)
    found = waits.first_tokens(p)
    rows = zip(found.request, found.parts.tolist(), strict=True)
    named = {run.requests.names[r]: {c: v for c, v in zip(found.causes, row, strict=True) if v} for r, row in rows}
    assert {r: named[r] for r in case.ttft} == case.ttft, case.why
    for boundary, gaps in case.deliveries.items():
        found = waits.boundary_gaps(p, boundary)
        got = {
            (run.requests.names[r], t0, t1): (
                found.causes[primary] if primary >= 0 else "clean",
                {c: v for c, v in zip(found.causes, row, strict=True) if v},
            )
            for r, t0, t1, primary, row in zip(
                found.request, found.t0.tolist(), found.t1.tolist(), found.primary, found.parts.tolist(), strict=True
            )
        }
        assert got == wanted(gaps), case.why


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_post_on_its_own_logs(path: Path) -> None:
    """Every part of every gap within 2 ns (3 for the graph split) of what the post's own code made of it."""
    rows = np.load(path.with_suffix(".parts.npz"), allow_pickle=False)["rows"]
    run = sb.open(path)
    p = sb.partition(run, rules="post")
    table = dict(zip(p.causes, p.parts().T, strict=True))
    requests, steps = p.gaps.request.tolist(), run.steps.id[p.gaps.step_to].tolist()
    mine = {(run.requests.names[r], s): i for i, (r, s) in enumerate(zip(requests, steps, strict=True))}
    places = np.array([mine[str(int(r)), int(s)] for r, s in rows[:, :2].tolist()])
    assert len(rows) == len(requests) == len(set(places.tolist()))
    for label, ms in zip(plain_post.LABELS, rows[:, 4:].T, strict=True):
        worst = np.abs(table["fwd" if label == "kernel" else label][places] - ms * 1e6).max()
        assert worst <= (3 if label in ("graph", "kernel") else 2), label
    want = json.loads(path.with_suffix(".expected.json").read_text())
    assert p.reconcile.max_error_ns == 0
    assert p.reconcile.skipped_steps_unexplained == want["skipped_steps_without_eviction"]
