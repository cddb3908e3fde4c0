"""The compiled kernels give the same integers as NumPy; what a device hides is known and charged to nothing."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

import stallbook as sb
from randomlog import KINDS, random_log
from stallbook.partition import Partition
from stallbook.run import Run
from test_partition import STAND_IN, opened

ROOT = Path(__file__).parent.parent
SCENARIOS = Path(__file__).parent / "data" / "scenarios"


def both(run: Run, monkeypatch: pytest.MonkeyPatch, rules: str = "full") -> tuple[Partition, Partition]:
    """The partition by NumPy, then by Numba."""
    out = []
    for kernels in ("numpy", "numba"):
        monkeypatch.setenv("STALLBOOK_KERNELS", kernels)
        p = sb.partition(run, rules=rules)
        out.append((p, p.parts()))
    (a, a_parts), (b, b_parts) = out
    assert np.array_equal(a_parts, b_parts)
    return a, b


def same(a: Partition, b: Partition) -> None:
    assert a.causes == b.causes
    assert a.reconcile == b.reconcile
    for field in ("rows", "context", "hidden", "row_gap", "row_weight", "row_primary", "own"):
        assert np.array_equal(getattr(a, field), getattr(b, field)), field


@pytest.mark.parametrize("kind", KINDS)
def test_random_logs(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    for seed in range(25):
        events = random_log(random.Random(f"{kind} {seed}"), kind)
        events[0].setdefault("baseline", STAND_IN)
        run = opened(events, tmp_path)
        for rules in ("full", "post"):
            same(*both(run, monkeypatch, rules))


def test_a_long_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    synthetic = __import__("synthetic")
    run = synthetic.synthetic_run(60_000, seed=3)
    sys.modules.pop("synthetic")
    a, b = both(run, monkeypatch)
    same(a, b)
    assert a.row_weight.sum() == len(a.gaps) > 50_000
    assert (a.reconcile.max_error_ns, a.reconcile.negative_parts) == (0, 0)
    assert len(a.own) > 2


@pytest.mark.parametrize(("name", "hidden"), [("S11", [0, 18, 22]), ("H06", [6, 13, 6, 13]), ("S01", [0, 0])])
def test_work_behind_a_busy_device_is_hidden(name: str, hidden: list[int]) -> None:
    p = sb.partition(sb.open(SCENARIOS / f"{name}.jsonl"))
    assert (p.hidden[p.row_of_gap] // 1_000_000).tolist() == hidden
