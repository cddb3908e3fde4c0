"""Times and lengths beyond what floating point counts exactly: the parts still add up, and agree with the slow way."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stallbook as sb
from randomlog import KINDS, random_log
from stallbook.errors import StallbookError
from stallbook.intervals import mul_div, sums
from stallbook.tally import tally
from test_partition import check_against_slow, opened
from test_slow import RULES, Rules

TIMES = ("t", "t0", "t1", "run_delay_ns")


def moved(events: list[dict[str, Any]], scale: int, offset: int) -> list[dict[str, Any]]:
    """Every time of a log scaled, and all but amounts moved."""
    out = []
    for event in events:
        told = dict(event)
        for key in TIMES:
            if isinstance(told.get(key), int):
                told[key] = told[key] * scale + (0 if key == "run_delay_ns" else offset)
        if "baseline" in told:
            told["baseline"] = {key: value * min(scale, 2**40) for key, value in told["baseline"].items()}
        out.append(told)
    return out


@pytest.mark.parametrize("kernels", ["numpy", "numba"])
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_huge_times(kind: str, rules: Rules, kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels == "numba" and importlib.util.find_spec("numba") is None:
        pytest.skip("needs the fast extra")
    monkeypatch.setenv("STALLBOOK_KERNELS", kernels)
    tried = 0
    for seed in range(12):
        events = random_log(random.Random(f"huge {kind} {seed}"), kind)
        last = max((e.get(key) or 0 for e in events for key in TIMES), default=0)
        for scale, offset in ((1, 10**18), (1, 2**61 - 1 - last), (2**52 + 1, -(2**60)), (2**54 - 1, 0)):
            if last * scale + offset < 2**61:
                check_against_slow(moved(events, scale, offset), rules, tmp_path)
                tried += 1
    assert tried > 12


def test_mul_div_and_sums_are_exact() -> None:
    rng = random.Random(1)
    rows = []
    for _ in range(2000):
        c = rng.randrange(1, 1 << rng.randrange(1, 62))
        rows.append((rng.randrange(1 << rng.randrange(1, 62)), rng.randrange(c + 1), c))
    a, b, c = np.array(rows, np.int64).T
    assert mul_div(a, b, c).tolist() == [x * y // z for x, y, z in rows]
    assert sums(np.zeros(3, np.int64), np.array([2**60, 1, 1]), 2).tolist() == [2**60 + 2, 0]


def test_a_log_on_two_clocks_reports_whole_shares(tmp_path: Path) -> None:
    """A dozen gaps of 50 years add up to more than 64 bits hold."""
    everyone = {f"r{i}": 1 for i in range(12)}
    events: list[dict[str, Any]] = [{"stallbook": 1, "engine": "two clocks", "records": ["segments"]}]
    for step, (t0, t1) in enumerate([(0, 10), (10, 17 * 10**17)]):
        events += [
            {"e": "step", "id": step, "t0": t0, "t1": t1},
            {"e": "emit", "step": step, "t": t1, "tokens": everyone},
        ]
    p = sb.partition(opened(events, tmp_path))
    every = tally(p).mix()
    assert every.total_ns == every.time_ns["residual"] == 12 * (17 * 10**17 - 10)
    assert every.share["residual"] == 1.0
    assert sb.report(p.run).as_dict()["all"]["share"]["residual"] == 1.0


def test_tokens_that_would_overflow_are_refused(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"stallbook": 1, "engine": "x"},
        {"e": "step", "id": 1, "t0": 0, "t1": 1},
        {"e": "emit", "step": 1, "t": 1, "tokens": {"r1": 2**60}},
    ]
    with pytest.raises(StallbookError, match=r"log\.jsonl:3: tokens = .* is out of range"):
        opened(events, tmp_path)
