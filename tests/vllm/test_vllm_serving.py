"""As a new user would: 200 streaming requests under a KV pool so small that it has to preempt; then the report."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from vllm_load import Answer, load, mixed, save
from vllm_server import LAYOUTS, Layout, serving

import stallbook as sb
from stallbook.beyond import exactness
from stallbook.client import join
from stallbook.partition import Partition
from stallbook.run import Run
from stallbook.waits import boundary_gaps, first_tokens

REQUESTS = 200
NAMED = ("os", "other:ipc", "other:dispatch", "other:loop", "output", "sched")
"""Causes that tell message passing and waits by name."""


@dataclass
class Recorded:
    """One server's life."""

    log: Path
    client: Path
    answers: list[Answer]
    counters: dict[str, int]
    run: Run
    partition: Partition


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.name)
def recorded(request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    layout: Layout = request.param
    folder = tmp_path_factory.mktemp(layout.name)
    log, client = folder / "out.stall", folder / "client.jsonl"
    with serving(home, folder / "server.txt", layout, log) as server:
        answers = load(server.url, mixed(1, REQUESTS))
        counters = server.counters()
    save(answers, client)
    run = sb.open(log)
    return Recorded(log, client, answers, counters, run, sb.partition(run))


def test_the_server_answered_everything(recorded: Recorded) -> None:
    assert [one.error for one in recorded.answers if one.error] == []
    assert len(recorded.answers) == REQUESTS


def test_preemptions_and_tokens_are_those_that_vllm_counted(recorded: Recorded) -> None:
    run, told = recorded.run, recorded.counters
    assert told["vllm:num_preemptions_total"] > 0
    assert len(run.evictions.request) == told["vllm:num_preemptions_total"]
    assert int(run.emissions.tokens.sum()) == told["vllm:generation_tokens_total"]
    assert int(run.emissions.tokens.sum()) == sum(one.tokens for one in recorded.answers)


def test_every_request_and_its_sizes_are_there(recorded: Recorded) -> None:
    run = recorded.run
    assert len(run.requests.names) == REQUESTS
    assert int(run.requests.prompt_tokens.sum()) == sum(one.prompt_tokens for one in recorded.answers)
    assert int(run.requests.max_tokens.sum()) == sum(one.tokens for one in recorded.answers)


def test_every_gap_reconciles(recorded: Recorded) -> None:
    p = recorded.partition
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
    assert len(p.gaps) == sum(one.tokens for one in recorded.answers) - REQUESTS
    assert exactness(first_tokens(p)) == (0, 0)
    assert exactness(boundary_gaps(p, "frontend")) == (0, 0)


def test_little_is_unexplained(recorded: Recorded) -> None:
    p = recorded.partition
    shares, tail = _shares(p)
    print({name: f"{share:.2%}" for name, share in shares.items()}, f"residual of the tail {tail:.2%}")
    assert shares.get("residual", 0.0) <= 0.03
    assert tail <= 0.10
    assert any(shares.get(name, 0) > 0 for name in NAMED)


def _shares(p: Partition) -> tuple[dict[str, float], float]:
    """Each cause's share of all gaps' time; the residual's of the tail's."""
    weight = p.row_weight[:, None]
    total = (p.rows * weight).sum(axis=0)
    shares = dict(zip(p.causes, (total / total.sum()).tolist(), strict=True))
    gaps = np.repeat(p.row_gap, p.row_weight)
    tail = p.row_gap >= np.percentile(gaps, 99)
    held = (p.rows * weight)[tail].sum(axis=0)
    residual = held[p.causes.index("residual")] / held.sum() if "residual" in p.causes else 0.0
    return shares, float(residual)


def test_the_client_joins_by_id_and_clock(recorded: Recorded) -> None:
    run = join(recorded.run, recorded.client)
    assert run.facts["client"]["matched"] == REQUESTS
    assert not {"client_requests_without_match", "requests_without_client", "client_requests_sized_by_clock"} & set(
        run.notes
    )
    waits = boundary_gaps(sb.partition(run), "client")
    assert exactness(waits) == (0, 0)
    assert waits.unmatched == 0
    assert {"frontend", "network"} <= set(waits.causes)


def test_the_report_explains_the_tail(recorded: Recorded) -> None:
    command = [sys.executable, "-m", "stallbook", "report", str(recorded.log), "--client", str(recorded.client)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(told)
    told = " ".join(told.split())
    for words in ("of the tail's time is", "Gaps at the frontend", "Gaps at the client", "reconciliation exact"):
        assert words in told
    for name, noun in (("num_preemptions", "preemptions"), ("generation_tokens", "generation tokens")):
        assert f"{noun} {recorded.counters[f'vllm:{name}_total']:,}, as recorded" in told
    as_json = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True).stdout
    (run,) = json.loads(as_json)["runs"]
    assert run["run"]["engine"].startswith("vllm ")
