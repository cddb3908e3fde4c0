"""The first token's wait in runs of the demonstrator that queue for KV blocks: exact, and explained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stallbook as sb
from stallbook import waits

SMALL = {"seconds": 0.5, "rate": 25, "kv_blocks": 200, "gc_freeze": True, "compact_history": True, "tokenize": "loop"}


@pytest.mark.parametrize("more", [{"admit_watermark": 0.1}, {"preemption": "recompute"}], ids=["watermark", "dry"])
@pytest.mark.slow
def test_the_parts_of_each_first_token_add_up_and_its_queue_is_explained(tmp_path: Path, more: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "stallbook.demo", "--settings", json.dumps(SMALL | more)]
    done = subprocess.run([*command, "--out", str(tmp_path / "x.stall")], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    run = sb.open(tmp_path / "x.stall")
    w = waits.first_tokens(sb.partition(run))
    assert len(w.request) == len(run.requests.names) >= 5
    assert (w.parts.sum(axis=1) == w.t1 - w.t0).all()
    assert (w.parts >= 0).all()
    assert w.never_admitted == 0
    told = dict(zip(w.causes, w.parts.sum(axis=0).tolist(), strict=True))
    blocked = waits.blocked_by(run)
    assert blocked is not None
    by = dict(zip(waits.BLOCKERS, blocked.tolist(), strict=True))
    way_in = run.requests.admit - run.requests.arrive
    assert sum(by.values()) == way_in.sum()
    assert told["queue"] <= way_in.sum()
    assert by["KV blocks"] > 0.5 * told["queue"] > 0
