"""As a new user would, in both loops: streams under a KV pool so small that SGLang retracts; then the report."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from sglang_server import COUNTERS, LOOPS, Layout, load, serving

import stallbook as sb
from engine_load import Answer, Ask, ids, save
from stallbook.beyond import exactness
from stallbook.client import join
from stallbook.partition import Partition
from stallbook.run import Run
from stallbook.waits import boundary_gaps, first_tokens
from tiny_model import words

REQUESTS, AT_ONCE = 60, 16
HOOKS = 16


@dataclass
class Recorded:
    """One server's life."""

    log: Path
    client: Path
    answers: list[Answer]
    counters: dict[str, int]
    run: Run
    partition: Partition


def asks(seed: int) -> list[Ask]:
    """Short prompts, half of them as text, and long answers: what is admitted grows out of the pool."""
    rng = Random(seed)
    out = []
    for i in range(REQUESTS):
        length = rng.randint(16, 200)
        prompt = words(rng, int(length / 1.6)) if rng.random() < 0.5 else ids(rng, length)
        out.append(Ask(f"r-{seed}-{i}", prompt, rng.randint(96, 256), rng.choice((0.0, 0.8))))
    return out


@pytest.fixture(scope="module", params=LOOPS, ids=lambda layout: layout.name)
def recorded(request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    layout: Layout = request.param
    folder = tmp_path_factory.mktemp(layout.name)
    log, client = folder / "out.stall", folder / "client.jsonl"
    with serving(home, folder / "server.txt", layout, log) as server:
        answers = load(server.url, asks(1), AT_ONCE)
        counters = server.counters()
    save(answers, client)
    run = sb.open(log)
    return Recorded(log, client, answers, counters, run, sb.partition(run))


def test_retractions_and_tokens_are_those_that_sglang_counted(recorded: Recorded) -> None:
    assert [one.error for one in recorded.answers if one.error] == []
    run, told = recorded.run, recorded.counters
    assert told[COUNTERS[0]] > 0
    assert len(run.evictions.request) == told[COUNTERS[0]]
    assert int(run.emissions.tokens.sum()) == told[COUNTERS[1]] == sum(one.tokens for one in recorded.answers)
    assert run.notes.keys() <= {"merged_pauses", "off_path_pauses"}


def test_every_request_and_its_sizes_are_there(recorded: Recorded) -> None:
    run = recorded.run
    assert set(run.requests.names) == {one.name for one in recorded.answers}
    assert int(run.requests.prompt_tokens.sum()) == sum(one.prompt_tokens for one in recorded.answers)
    assert int(run.requests.max_tokens.sum()) == sum(one.tokens for one in recorded.answers)
    assert int(run.deliveries.tokens.sum()) == int(run.emissions.tokens.sum())


def test_every_gap_reconciles(recorded: Recorded) -> None:
    p = recorded.partition
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
    assert len(p.gaps) == sum(one.tokens for one in recorded.answers) - REQUESTS
    assert exactness(first_tokens(p)) == (0, 0)
    assert exactness(boundary_gaps(p, "frontend")) == (0, 0)


def test_the_loop_is_the_one_that_was_asked_for(recorded: Recorded, request: pytest.FixtureRequest) -> None:
    loop = recorded.run.facts["loop"]
    assert f"[{loop}]" in request.node.name
    assert recorded.run.config["disable_overlap_schedule"] == (loop == "normal")


def test_the_client_joins_by_id_and_clock(recorded: Recorded) -> None:
    run = join(recorded.run, recorded.client)
    assert run.facts["client"]["matched"] == REQUESTS
    waits = boundary_gaps(sb.partition(run), "client")
    assert exactness(waits) == (0, 0)
    assert waits.unmatched == 0


def test_the_report_explains_the_tail(recorded: Recorded) -> None:
    command = [sys.executable, "-m", "stallbook", "report", str(recorded.log), "--client", str(recorded.client)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(told)
    told = " ".join(told.split())
    for text in ("of the tail's time is", "Gaps at the frontend", "Gaps at the client", "reconciliation exact"):
        assert text in told
    for name, noun in ((COUNTERS[0], "preemptions"), (COUNTERS[1], "generation tokens")):
        assert f"{noun} {recorded.counters[name]:,}, as recorded" in told
    assert f"{HOOKS} of {HOOKS} found" in told
    as_json = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True).stdout
    (run,) = json.loads(as_json)["runs"]
    assert run["run"]["engine"].startswith("sglang ")
