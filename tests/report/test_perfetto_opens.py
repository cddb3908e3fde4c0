"""A trace in Perfetto's own trace processor: it opens without a complaint, and SQL says what `gaps` says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from perfetto_page import opened, query

import stallbook as sb
from stallbook.causes import ordered
from stallbook.cli import main

pytest.importorskip("perfetto")
pytest.importorskip("pyarrow")

LOG = Path(__file__).parents[1] / "data" / "golden" / "baseline__s1.npz"
PAGE = Path(__file__).parents[2] / "docs" / "convert.md"

pytestmark = pytest.mark.perfetto


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    trace = tmp_path_factory.mktemp("trace") / "x.perfetto-trace"
    assert main(["convert", str(LOG), str(trace)]) == 0
    with opened(trace) as found:
        yield found


def test_nothing_is_lost_or_refused(page: Any) -> None:
    bad = query(page, "select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    assert bad == []


def test_sql_returns_the_parts_of_a_hundred_gaps(page: Any) -> None:
    rows = sb.partition(sb.open(LOG)).to_arrow().to_pylist()
    told = ordered(key.removesuffix("_ns") for key in rows[0] if key.endswith("_ns") and "context" not in key)
    causes = [c for c in told if c not in ("t0", "t1", "gap")]
    columns = ", ".join(f"extract_arg(s.arg_set_id, 'debug.{c}_ns') as \"{c}_ns\"" for c in causes)
    for row in random.Random(1).sample(rows, 100):
        found = query(
            page,
            f"""select s.ts as t0_ns, s.dur as gap_ns, s.name as "primary", {columns},
            extract_arg(s.arg_set_id, 'debug.step') as step, extract_arg(s.arg_set_id, 'debug.tokens') as tokens
            from slice s join track t on s.track_id = t.id
            where s.category = 'gap' and t.name = '{row["request"]}' and s.ts = {row["t0_ns"]}""",
        )
        kept = ("t0_ns", "gap_ns", "primary", "step", "tokens", *(f"{c}_ns" for c in causes))
        assert [{k: v or 0 for k, v in one.items()} for one in found] == [{k: row[k] or 0 for k in kept}]


def test_pieces_lie_in_their_gap_and_fill_it(page: Any) -> None:
    (found,) = query(
        page,
        """select count(*) as gaps, sum(inside != dur) as wrong from
        (select g.dur, (select sum(p.dur) from slice p where p.parent_id = g.id and p.category = 'part') as inside
        from slice g where g.category = 'gap' and g.name != 'clean')""",
    )
    assert found["gaps"] > 1000
    assert found["wrong"] == 0


def test_every_gap_is_there(page: Any) -> None:
    rows = sb.partition(sb.open(LOG)).to_arrow().to_pylist()
    (found,) = query(page, "select count(*) as gaps, sum(dur) as ns from slice where category = 'gap'")
    assert found == {"gaps": len(rows), "ns": sum(row["gap_ns"] for row in rows)}


def test_the_queries_of_the_page_run(page: Any) -> None:
    blocks = PAGE.read_text(encoding="utf-8").split("```sql\n")[1:]
    assert blocks
    for block in blocks:
        assert query(page, block.split("```")[0])
