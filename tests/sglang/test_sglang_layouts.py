"""The other ways to run SGLang: several data-parallel ranks, and no server at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from sglang_server import ENVIRONMENT, LARGE_POOL, Layout, load, serving

import stallbook as sb
from engine_load import Ask, ids

REQUESTS = 24
ALONE = """
import sys
import sglang

if __name__ == "__main__":
    engine = sglang.Engine(
        model_path=sys.argv[1], device="cpu", dtype="float32", attention_backend="torch_native",
        sampling_backend="pytorch", max_total_tokens=4096, log_level="warning",
    )
    limits = {"max_new_tokens": 24, "ignore_eos": True}
    made = engine.generate(["kalo miren"] * 6, limits)
    print("tokens", sum(one["meta_info"]["completion_tokens"] for one in made))
    engine.shutdown()
"""


def test_two_ranks(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "out.stall"
    rng = Random(5)
    asks = [Ask(f"r{i}", ids(rng, 32), 48) for i in range(REQUESTS)]
    cpus = sorted(os.sched_getaffinity(0))  # on a CPU each rank wants some of its own
    layout = Layout("ranks", {"SGLANG_CPU_OMP_THREADS_BIND": f"{cpus[0]}|{cpus[-1]}"}, ("--dp-size", "2"))
    with serving(home, tmp_path / "server.txt", layout, log, pool=LARGE_POOL) as server:
        answers = load(server.url, asks)
    assert [one.error for one in answers if one.error] == []
    runs = [sb.open(one) for one in (log, tmp_path / "out.dp1.stall")]
    assert sum(int(run.emissions.tokens.sum()) for run in runs) == sum(one.tokens for one in answers)
    for run in runs:
        p = sb.partition(run)
        assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
        assert int(run.deliveries.tokens.sum()) == int(run.emissions.tokens.sum()) > 0


def test_without_a_server(home: Path, tmp_path: Path) -> None:
    script, log = tmp_path / "alone.py", tmp_path / "out.stall"
    script.write_text(ALONE)
    given = os.environ | ENVIRONMENT | {"STALLBOOK": str(log)}
    command = [sys.executable, str(script), str(home / "tiny")]
    told = subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 0, told.stderr[-3000:]
    assert "tokens 144" in told.stdout
    run = sb.open(log)
    assert int(run.emissions.tokens.sum()) == 144
    assert sb.partition(run).reconcile.max_error_ns == 0
