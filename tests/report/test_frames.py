"""The table of gaps: the same figures in every format, streamed."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from report_standin import MS, Rows, a_run, ints, partition

import stallbook as sb
from stallbook import frames
from stallbook.errors import StallbookError

pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def p() -> Any:
    """Three gaps over two rows."""
    rows = Rows([(10, 2, {"residual": 1}), (20, 1, {"preempt": 15})], causes=("preempt", "fwd", "residual"))
    gaps = SimpleNamespace(
        request=ints(0, 1, 1), step_to=ints(1, 1, 2), t0=ints(10, 10, 20) * MS, t1=ints(20, 20, 40) * MS,
        tokens=ints(1, 1, 2),
    )  # fmt: skip
    return partition(rows, a_run(), gaps=gaps, row_of_gap=ints(0, 0, 1))


EXPECTED = {
    "request": ["r1", "r2", "r2"], "step": [1, 1, 2], "t0_ns": [10 * MS, 10 * MS, 20 * MS],
    "t1_ns": [20 * MS, 20 * MS, 40 * MS], "gap_ns": [10 * MS, 10 * MS, 20 * MS], "tokens": [1, 1, 2],
    "primary": ["clean", "clean", "preempt"], "preempt_ns": [0, 0, 15 * MS], "fwd_ns": [9 * MS, 9 * MS, 5 * MS],
    "residual_ns": [MS, MS, 0], "context_preempt_ns": [0, 0, 0], "context_fwd_ns": [0, 0, 0],
    "context_residual_ns": [0, 0, 0],
    **{f"{prefix}{cause}_ns": [0, 0, 0] for cause in ("prefill", "graph", "gc", "tok") for prefix in ("", "context_")},
}  # fmt: skip
"""Every cause has a column, also where it took no time."""


@pytest.mark.parametrize("rows_at_a_time", [1, 2, 1 << 17])
def test_parquet(p: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_a_time: int) -> None:
    monkeypatch.setattr(frames, "ROW_GROUP", rows_at_a_time)
    path = tmp_path / "gaps.parquet"
    assert frames.write(p, path) == 3
    assert pq.read_table(path).to_pydict() == EXPECTED
    assert pq.ParquetFile(path).num_row_groups == -(-3 // rows_at_a_time)


def test_arrow(p: Any) -> None:
    table = frames.to_arrow(p)
    assert table.to_pydict() == EXPECTED
    assert table.column_names == frames.columns(p)


def test_json_lines(p: Any, tmp_path: Path) -> None:
    frames.write(p, tmp_path / "gaps.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "gaps.jsonl").read_text().splitlines()]
    assert {name: [row[name] for row in rows] for name in rows[0]} == EXPECTED


def test_csv(p: Any, tmp_path: Path) -> None:
    frames.write(p, tmp_path / "part", ".csv")
    with (tmp_path / "part").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {name: [row[name] for row in rows] for name in rows[0]} == {
        name: [str(value) for value in values] for name, values in EXPECTED.items()
    }


def test_no_gaps(tmp_path: Path) -> None:
    none = SimpleNamespace(request=ints(), step_to=ints(), t0=ints(), t1=ints(), tokens=ints())
    p = partition(Rows([]), a_run(), gaps=none, row_of_gap=ints())
    for suffix in frames.FORMATS:
        assert frames.write(p, tmp_path / f"gaps{suffix}") == 0
    assert pq.read_table(tmp_path / "gaps.parquet").num_rows == 0


def test_unknown_suffix() -> None:
    with pytest.raises(StallbookError, match="parquet"):
        frames.check_format(Path("gaps.xls"))


def test_parts_add_up_in_the_table(p: Any) -> None:
    table = frames.to_arrow(p).to_pydict()
    parts = np.array([table[f"{cause}_ns"] for cause in p.causes])
    assert parts.sum(0).tolist() == table["gap_ns"]


def test_what_was_not_recorded_is_null(tmp_path: Path) -> None:
    run = sb.open(Path(__file__).parents[1] / "data" / "scenarios" / "S01.jsonl")
    table = sb.partition(run).to_arrow()
    assert table.column_names == frames.columns(sb.partition(run))
    got = table.to_pydict()
    assert got["prefill_ns"] == [1_270_000_000, 0]
    assert got["graph_ns"] == [0, 0]
    assert got["os_ns"] == got["unscheduled_ns"] == [None, None]
    frames.write(sb.partition(run), tmp_path / "gaps.jsonl")
    first = json.loads((tmp_path / "gaps.jsonl").read_text().splitlines()[0])
    assert first["os_ns"] is None
