"""As a user would: a real server with a verbose log, requests, `stallbook convert`, `stallbook report`."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest
from llama_load import Answer, Ask, ids, load, save
from llama_loads import LOADS, record
from llama_server import Server, serving

import stallbook as sb
from stallbook.client import join
from stallbook.errors import StallbookError
from stallbook.run import UNKNOWN, Run

US = 1000


@dataclass
class Recorded:
    """One server's life."""

    name: str
    log: Path
    streams: Path
    answers: list[Answer]
    run: Run


@pytest.fixture(scope="module", params=LOADS)
def recorded(request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp(request.param)
    answers = record(request.param, home, folder)
    log = folder / f"{request.param}.log"
    return Recorded(request.param, log, folder / f"{request.param}.sse", answers, sb.open(log))


def tokens(answer: Answer) -> int:
    """So many tokens as the server said that it made."""
    return max((chunk["timings"]["predicted_n"] for chunk in answer.chunks if "timings" in chunk), default=0)


def test_the_log_converts_and_reports(recorded: Recorded, tmp_path: Path) -> None:
    out = tmp_path / "out.stall"
    stallbook = Path(sys.executable).parent / "stallbook"
    subprocess.run([stallbook, "convert", recorded.log, out], check=True)
    told = subprocess.run([stallbook, "report", out], check=True, capture_output=True, text=True).stdout
    assert "llama.cpp" in told
    assert "reconciliation  exact" in told


def test_every_token_is_there_and_no_line_was_garbled(recorded: Recorded) -> None:
    run = recorded.run
    assert int(run.emissions.tokens.sum()) == sum(map(tokens, recorded.answers))
    assert len(run.requests.names) == len(recorded.answers)
    assert set(run.notes) <= {"kv_full_retries", "kv_full_purged_slots", "failed_requests"}


def test_every_gap_is_exact(recorded: Recorded) -> None:
    p = sb.partition(recorded.run)
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts, p.reconcile.gaps_skipping) == (0, 0, 0)
    residual = p.parts()[:, p.causes.index("residual")].sum()
    assert residual <= 0.01 * (p.gaps.t1 - p.gaps.t0).sum()


def test_gaps_are_those_of_the_servers_own_timings(recorded: Recorded) -> None:
    """To what passes between a token's time and its message: microseconds, where the system does not step in."""
    run, served = recorded.run, join(recorded.run, recorded.streams)
    assert served.facts["client"]["matched"] == sum(tokens(answer) > 0 for answer in recorded.answers)
    off = []
    for row in range(len(run.requests.names)):
        ours, theirs = (one.deliveries.t[one.deliveries.request == row] for one in (run, served))
        assert len(ours) == len(theirs)
        off += np.abs(np.diff(ours) - np.diff(theirs)).tolist()
    assert np.median(off) <= 50 * US
    assert np.quantile(off, 0.9) <= 1000 * US


def test_what_failed_is_told(recorded: Recorded) -> None:
    failed = sum("Context size" in answer.error or answer.status == 500 for answer in recorded.answers)
    assert recorded.run.notes.get("failed_requests", 0) == failed
    assert (failed > 0) == (recorded.name == "full") == ("kv_full_retries" in recorded.run.notes)


def test_sigkill_leaves_a_log_that_opens(home: Path, tmp_path: Path) -> None:
    server = Server(home, tmp_path / "server.log")
    try:
        server.wait()
        load(server.url, [Ask(ids(Random(4), 20), 30) for _ in range(2)])
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(10)
    finally:
        server.stop()
    run = sb.open(tmp_path / "server.log")
    assert int(run.emissions.tokens.sum()) > 50


def test_a_server_that_is_not_verbose_is_told_apart(home: Path, tmp_path: Path) -> None:
    with serving(home, tmp_path / "server.log", verbose=("--verbosity", "3")) as server:
        save(load(server.url, [Ask([300, 301], 4)]), tmp_path / "a.sse")
    with pytest.raises(StallbookError, match="-lv 10 --log-timestamps"):
        sb.open(tmp_path / "server.log")


def test_requests_that_were_given_up_have_an_end(home: Path, tmp_path: Path) -> None:
    import http.client
    import json
    import time

    with serving(home, tmp_path / "server.log") as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
        body = {"prompt": [300, 301], "max_tokens": 2000, "stream": True, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().read1(100)
        connection.close()
        time.sleep(1.5)
        load(server.url, [Ask([300, 301], 4)])
    run = sb.open(tmp_path / "server.log")
    assert len(run.requests.names) == 2
    assert (run.requests.finish != UNKNOWN).all()
