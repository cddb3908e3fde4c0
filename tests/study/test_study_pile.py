"""The sixth pile's arithmetic, on planted timelines: what ran above its baseline, and what `os` holds of that."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stallbook as sb
from stallbook.errors import StallbookError
from stallbook.partition import partition
from stallbook.run import Run
from stallbook.study.bent import compare
from stallbook.study.pile import (
    APART_NS,
    Charged,
    Pile,
    charged,
    clear,
    decode_steps,
    gaps_of,
    inside,
    pile,
    spans_of,
    uncontended,
)  # fmt: skip
from stallbook.study.pile_text import Result, as_json, to_text
from stallbook.tally import Distribution

ROOT = Path(__file__).parent.parent.parent
MS = 1_000_000
SIZES = (4, 8, 16)


def usual(rows: int) -> int:
    """What a planted step of so many rows takes: 1 ms + 0.1 ms a row + 100 ns for each of 100 KV tokens a row."""
    return MS + rows * (MS // 10) + rows * 100 * 100


class Planted:
    """A log of steps one after the other, each a decode segment that ends with an emission for one request."""

    def __init__(self) -> None:
        self.now = 0
        self.lines: list[dict[str, Any]] = [
            {"stallbook": 1, "engine": "planted", "records": ["segments", "gc", "evictions", "graph", "os", "members"]},
            {"e": "arrive", "request": "r", "t": 0},
            {"e": "admit", "request": "r", "t": 0},
        ]
        self.steps = 0

    def step(self, rows: int, more: int = 0, waited: int = 0, graph: str = "captured") -> None:
        """One of `rows` rows that took `more` than usual, of which its threads waited so long for a core."""
        t0, t1 = self.now, self.now + usual(rows) + more
        step = {"e": "step", "id": self.steps, "t0": t0, "t1": t1, "graph": graph, "padded": rows}
        self.lines += [
            step | {"decode_tokens": rows, "kv_tokens": rows * 100 + self.steps % 7, "members": ["r"]},
            {"e": "segment", "step": self.steps, "name": "decode", "t0": t0, "t1": t1, "run_delay_ns": waited},
            {"e": "emit", "step": self.steps, "t": t1, "tokens": {"r": 1}},
        ]
        self.steps, self.now = self.steps + 1, t1

    def run(self, folder: Path) -> Run:
        path = folder / "planted.jsonl"
        path.write_text("\n".join(map(json.dumps, self.lines)) + "\n")
        return sb.open(path)


@pytest.fixture
def planted() -> Planted:
    log = Planted()
    for i in range(120):
        log.step(SIZES[i % 3])
    return log


def test_the_excess_of_a_step_is_what_it_took_above_its_baseline(planted: Planted, tmp_path: Path) -> None:
    planted.step(8, more=3 * MS, waited=2 * MS)  # less than twice its baseline with the wait taken out
    planted.step(16, more=20 * MS, waited=12 * MS)  # 8 ms more than usual with it taken out: slow
    planted.step(4, more=9 * MS, waited=9 * MS)  # far, as the one before: more than five times its usual
    planted.step(4, more=-MS // 2, waited=MS // 4)  # a wait in a step that was quick all the same
    run = planted.run(tmp_path)
    base = uncontended(decode_steps(partition(run)))
    p = partition(run, "full", base)
    found = pile(decode_steps(p))
    near = pytest.approx
    assert found.steps == 124
    assert found.excess_ns == near(32 * MS, abs=3000)
    assert found.os_ns == near(23 * MS, abs=3000)
    assert found.charged_os_ns == 23 * MS + MS // 4
    assert found.slow_ns == near(8 * MS, abs=3000)
    assert found.rest_ns == near(MS, abs=3000)
    assert (found.far_steps, found.far_gaps) == (2, 20)
    assert found.far_share == near(21 / 29, abs=1e-3)
    assert found.host_ns == sum(usual(SIZES[i % 3]) for i in range(120)) + sum(map(usual, (8, 16, 4, 4))) + 63 * MS // 2


def test_what_quiet_steps_scatter_is_not_a_neighbours() -> None:
    quiet = Pile(steps=10, usual_ns=100, excess_ns=5)
    beside = Pile(steps=10, usual_ns=100, excess_ns=105, os_ns=90)
    assert quiet.scatter == 0.05
    assert beside.beyond(0.05) == 0.9
    assert beside.os_share == pytest.approx(90 / 105)
    assert Pile().scatter is Pile().os_share is Pile().far_share is Pile().beyond(0.0) is None
    assert beside + Pile() == beside


def test_a_baseline_is_fitted_to_steps_in_which_nobody_waited(planted: Planted, tmp_path: Path) -> None:
    for i in range(200):
        planted.step(SIZES[i % 3], more=2 * MS, waited=2 * MS)
    base = uncontended(decode_steps(partition(planted.run(tmp_path))))
    for rows in SIZES:
        expected = base.fixed_ns + rows * base.row_ns + rows * 100 * base.kv_token_ns
        assert expected == pytest.approx(usual(rows), rel=0.01)


def test_a_log_without_calm_steps_is_refused(tmp_path: Path) -> None:
    log = Planted()
    log.step(4)
    steps = decode_steps(partition(log.run(tmp_path)))
    with pytest.raises(StallbookError, match="beside no neighbour"):
        uncontended(steps.where(np.zeros(1, bool)))


def test_a_neighbours_slices_are_its_waking_hours(planted: Planted, tmp_path: Path) -> None:
    late = 5 * APART_NS
    assert spans_of([(late, late + 9), (0, 4), (8, 12), (10, 11)]) == [(0, 12), (late, late + 9)]
    steps = decode_steps(partition(planted.run(tmp_path)))
    span = (int(steps.t0[10]), int(steps.t1[19]) - 1)
    assert np.flatnonzero(inside(steps, [span])).tolist() == list(range(10, 19))
    free = np.flatnonzero(clear(steps, [span]))
    assert free[:10].tolist() == list(range(10))
    assert free[10] > 20  # and the steps that follow at once are not free of it


def test_what_two_causes_hold_of_all_gap_time(planted: Planted, tmp_path: Path) -> None:
    planted.step(4, more=3 * MS, waited=3 * MS)
    p = partition(planted.run(tmp_path))
    found = charged(p)
    assert found.os_ns == 3 * MS
    assert found.slow_ns == 0
    assert found.gaps_ns == planted.now - usual(4)  # all but the first token's wait
    assert (found + Charged()).share == 3 * MS / found.gaps_ns
    assert gaps_of(p).count == planted.steps - 1


def test_a_neighbour_bends_least_squares_and_not_the_robust_fit(tmp_path: Path) -> None:
    """It was awake while batches were small, so that the slope falls and eager steps are charged for it."""
    log = Planted()
    for i in range(300):
        log.step(SIZES[i % 3])
    start = log.now
    for _ in range(60):
        log.step(4, more=6 * MS, waited=6 * MS)
    end = log.now
    for _ in range(10):
        log.step(32, more=4 * MS, graph="eager")
    found = compare(log.run(tmp_path), [(start, end)])
    fits = {one.name: one for one in found.fits}
    assert found.sizes == SIZES
    assert (found.eager_steps, found.os_ns) == (10, 360 * MS)
    for name in ("truth, full", "full"):
        assert fits[name].at_ns == pytest.approx([usual(rows) for rows in SIZES], rel=0.01)
        assert fits[name].graph_ns == pytest.approx(40 * MS, rel=0.02)
    assert fits["post"].method == "least squares"
    assert fits["post"].at_ns[0] > 1.5 * usual(4)
    assert fits["post"].row_ns < fits["full"].row_ns
    assert fits["post"].wrong_ns > 10 * MS
    assert fits["post, the true baseline"].wrong_ns < MS


def test_the_tables_fit_a_terminal_and_say_everything() -> None:
    part = Pile(steps=10, host_ns=210, usual_ns=100, excess_ns=105, os_ns=90, far_steps=1, far_gaps=4, far_host_ns=60,
                far_excess_ns=50, far_os_ns=50)  # fmt: skip
    lengths = Distribution.of(np.array([5 * MS, 7 * MS]))
    quiet = Pile(usual_ns=10, excess_ns=1)
    one = Result("neighbour", "all steps", 2, lengths, Charged(100, 2, 1), part, quiet, 9e4, 0.01)
    two = Result("calm", "all steps", 2, lengths, Charged(), Pile(), None, None, None)
    facts = {"machine": {"cpu": "made", "cores": 2}, "seconds": 10.0, "rate": 8.0, "seeds": [1, 7], "started": "now"}
    told = json.loads(json.dumps(as_json([one, two], None, facts)))
    text = to_text(told)
    assert max(map(len, text.splitlines())) <= 80
    assert told["configurations"][0]["os_beyond"] == pytest.approx(90 / 95)
    assert "94.7%" in text
    assert "100%" in text


def test_the_page_shows_what_was_measured() -> None:
    """The page's tables are those of the figures kept beside this test."""
    kept = json.loads((ROOT / "tests" / "study" / "gold" / "sixth_pile.json").read_text())
    page = (ROOT / "docs" / "sixth-pile.md").read_text()
    shown = page.split("<!-- measured -->\n```\n")[1].split("```\n<!-- end measured -->")[0]
    assert shown == to_text(kept)
    assert "python benchmarks/sixth_pile.py" in page


def test_the_benchmark_runs_the_configurations_that_the_page_explains() -> None:
    spec = importlib.util.spec_from_file_location("sixth_pile", ROOT / "benchmarks" / "sixth_pile.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    sys.modules["sixth_pile"] = benchmark
    spec.loader.exec_module(benchmark)
    kept = json.loads((ROOT / "tests" / "study" / "gold" / "sixth_pile.json").read_text())
    plans = benchmark.plans(kept["seconds"], kept["rate"])
    assert [plan.name for plan in plans[:-1]] == [one["name"] for one in kept["configurations"]]
    page = (ROOT / "docs" / "sixth-pile.md").read_text()
    for plan in plans:
        assert f"*{plan.name}*" in page
        assert plan.settings.blas_threads == (2 if "2 threads" in plan.name else 1)
        assert not plan.against or plan.against in [other.name for other in plans[: plans.index(plan)]]
