"""However a server ends, and whatever hinders the recorder: the server goes on, and what was recorded can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from vllm_load import load, mixed
from vllm_server import THREE, TWO, Layout, Server, serving

import stallbook as sb
from stallbook.run import Run

REQUESTS = 40
NAMES = {"api": "api:0", "engine": "engine", "worker": "worker:0"}
"""How a log calls the processes of each role."""


def whole(log: Path, *, gaps: int = 1) -> Run:
    """The log opens and reconciles."""
    run = sb.open(log)
    p = sb.partition(run)
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
    assert len(p.gaps) >= gaps
    return run


def report(log: Path) -> str:
    """What a user reads."""
    command = [sys.executable, "-m", "stallbook", "report", str(log)]
    return " ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@contextmanager
def under_load(server: Server, requests: int = 120) -> Iterator[threading.Thread]:
    """Requests under way; how they end does not matter."""
    thread = threading.Thread(target=load, args=(server.url, mixed(5, requests)), daemon=True)
    thread.start()
    time.sleep(4)
    yield thread


@pytest.mark.parametrize(("layout", "method"), [(THREE, "spawn"), (THREE, "fork"), (TWO, "fork")], ids=str)
def test_sigterm_in_the_midst_of_work(layout: Layout, method: str, home: Path, tmp_path: Path) -> None:
    log = tmp_path / "out.stall"
    environment = {"VLLM_WORKER_MULTIPROC_METHOD": method}
    with serving(home, tmp_path / "server.txt", layout, log, environment=environment) as server, under_load(server):
        server.stop(signal.SIGTERM)
    whole(log)


@pytest.mark.parametrize(
    ("layout", "role"), [(THREE, "api"), (THREE, "engine"), (THREE, "worker"), (TWO, "engine")], ids=str
)
def test_sigkill_of_any_process(layout: Layout, role: str, home: Path, tmp_path: Path) -> None:
    log = tmp_path / "out.stall"
    with serving(home, tmp_path / "server.txt", layout, log) as server, under_load(server):
        os.kill(server.pid(role), signal.SIGKILL)
        time.sleep(2)
        server.stop()
    whole(log)
    told = report(log)
    assert f"{NAMES[role]} was ended" in told, told[-1500:]


HINDERED: Mapping[str, Mapping[str, str]] = {
    "a hook that raises": {"STALLBOOK_FAULTS": ".", "STALLBOOK_FAULTS_RAISE": "1"},
    "a folder that cannot be written": {},
    "a full disk": {},
    "the kill switch": {"STALLBOOK_RECORD": "0"},
}


@pytest.mark.parametrize("case", HINDERED)
def test_the_server_goes_on(case: str, home: Path, tmp_path: Path) -> None:
    log, output = tmp_path / "out.stall", tmp_path / "server.txt"
    environment = {key: str(tmp_path) if value == "." else value for key, value in HINDERED[case].items()}
    if case == "a folder that cannot be written":
        (tmp_path / "file").touch()
        log = tmp_path / "file" / "out.stall"
    if full := case == "a full disk":
        log = tmp_path / "disk" / "out.stall"
    with _small_disk(log.parent, full), serving(home, output, TWO, log, environment=environment) as server:
        answers = load(server.url, mixed(2, REQUESTS))
        counters = server.counters()
    assert [one.error for one in answers if one.error] == []
    assert counters["vllm:generation_tokens_total"] == sum(one.tokens for one in answers)
    said = output.read_text(errors="replace")
    if case == "the kill switch":
        assert not log.exists()
        assert "stallbook:" not in said
    else:
        assert "stallbook:" in said
        assert said.count("stallbook:") < 20


@contextmanager
def _small_disk(folder: Path, wanted: bool) -> Iterator[None]:
    """A disk that is soon full."""
    if not wanted:
        yield
        return
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("not allowed to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
