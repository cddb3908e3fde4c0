"""A real server's overlap loop: each batch is paired with its own result, and pauses are charged to whom they delayed.

The witness stands in the scheduler beside the adapter and knows a result by its identity: see `spy/sitecustomize.py`.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sglang_server import LARGE_POOL, LOOPS, MIXED, RETRACTING, Layout, load, serving

import stallbook as sb
from engine_load import mixed
from stallbook.partition import Partition

SPY = Path(__file__).with_name("spy")
REQUESTS = 40


@dataclass
class Watched:
    """A recording, and what the witness saw: results in the order in which they were processed, collections."""

    p: Partition
    results: list[dict[str, Any]]
    collected: np.ndarray[Any, np.dtype[np.int64]]


@pytest.fixture(scope="module", params=(*LOOPS, MIXED), ids=lambda layout: layout.name)
def watched(request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    layout: Layout = request.param
    folder = tmp_path_factory.mktemp(layout.name)
    log, told = folder / "out.stall", folder / "told.jsonl"
    path = os.pathsep.join(filter(None, (str(SPY), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, "SGLANG_SPY": str(told)} | RETRACTING
    with serving(home, folder / "server.txt", layout, log, pool=LARGE_POOL, environment=environment) as server:
        answers = load(server.url, mixed(3, REQUESTS))
    assert [one.error for one in answers if one.error] == []
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    collected = np.array([line["collected"] for line in lines if "collected" in line], np.int64)
    results = [line for line in lines if "at" in line and not all(rid.startswith("HEALTH") for rid in line["grown"])]
    return Watched(sb.partition(sb.open(log)), results, collected)


def test_a_batch_is_paired_with_its_own_result(watched: Watched) -> None:
    run, results = watched.p.run, watched.results
    assert len(run.steps.id) == len(results)
    overlapped = 0
    for step, (seen, after) in enumerate(zip(results, [*results[1:], None], strict=True)):
        assert run.steps.emit[step] <= seen["at"] <= run.steps.t1[step]
        of = run.segments.step == step
        forward = of & (run.segments.device == 0) & (run.segments.name == run.names.index("decode"))
        (i,) = np.flatnonzero(forward)
        assert seen["ran"][0] <= run.segments.t0[i] < run.segments.t1[i] <= seen["ran"][1]
        assert run.steps.decode_tokens[step] + run.steps.prefill_tokens[step] == seen["rows"]
        mine = run.emissions.step == step
        names = [run.requests.names[k] for k in run.emissions.request[mine]]
        got = dict(zip(names, run.emissions.tokens[mine].tolist(), strict=True))
        assert got == {rid: grown for rid, grown in seen["grown"].items() if grown}
        batch = run.members.request[run.members.start[step] : run.members.start[step + 1]]
        assert got.keys() <= {run.requests.names[k] for k in batch} <= seen["grown"].keys()
        overlapped += after is not None and after["ran"][1] <= seen["at"]
    print(f"{len(results):,} results, {overlapped:,} of them processed after the next batch had run")
    loop = run.facts["loop"]
    assert overlapped > len(results) // 2 if loop == "overlap" else not overlapped


def test_a_pause_is_charged_to_the_gaps_that_it_delayed(watched: Watched) -> None:
    """Nothing hides it here: what delayed a token is all that lies between its result and the one before it."""
    p = watched.p
    stamps: dict[str, list[int]] = defaultdict(list)
    for seen in watched.results:
        for rid, grown in seen["grown"].items():
            if grown:
                stamps[rid].append(seen["at"])
    names = p.run.requests.names
    gc, held = (p.causes.index(name) for name in ("gc", "preempt"))
    charged, wanted = np.zeros((2, len(p.gaps)), np.int64)
    position: dict[str, int] = defaultdict(int)
    for i, parts in enumerate(p.parts()):
        who = names[int(p.gaps.request[i])]
        t0, t1 = stamps[who][position[who] :][:2]
        position[who] += 1
        if not parts[held]:  # which is all of the time in which a request is out
            both = np.minimum(watched.collected[:, 1], t1) - np.maximum(watched.collected[:, 0], t0)
            charged[i], wanted[i] = parts[gc], np.clip(both, 0, None).sum()
    assert sum(position.values()) == sum(len(one) - 1 for one in stamps.values())
    off = np.abs(charged - wanted)
    print(f"{(wanted > 0).sum():,} gaps with collections, {off.sum() / wanted.sum():.2%} of their time off")
    assert wanted.sum() > 0
    assert off.sum() < 0.02 * wanted.sum()
