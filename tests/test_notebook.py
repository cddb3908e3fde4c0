"""What a run, a partition and a report show of themselves in a notebook, and the frames that they hand out."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import stallbook as sb
from stallbook.errors import StallbookError
from stallbook.run import Run
from stallbook.tables import TABLES

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"
HOSTILE = '<script>alert("x")</script><span style="display:inline-block;height:10px;">'


@pytest.fixture(scope="module")
def run() -> Run:
    return sb.open(DATA / "scenarios" / "H05.jsonl")


class Tags(HTMLParser):
    """Every tag opened, and that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def faces(run: Run) -> list[str]:
    p = sb.partition(run)
    return [thing._repr_html_() for thing in (run, p, sb.report(run))]


def test_they_show_themselves_small(run: Run) -> None:
    for face in faces(run):
        told = Tags(face)
        assert told.seen <= {"div", "table", "tr", "td", "span", "details", "summary", "pre"}
        assert len(face) < 20_000
    assert "scenario H05" in Tags(run._repr_html_()).text
    assert "3 gaps" in Tags(sb.partition(run)._repr_html_()).text
    assert "of the tail's time is" in Tags(sb.report(run)._repr_html_()).text


def test_names_out_of_a_log_are_text(run: Run) -> None:
    names = tuple(HOSTILE if name == "kv" else name for name in run.names)
    hostile = replace(run, engine=HOSTILE, path=HOSTILE, names=names)
    for face in faces(hostile):
        assert "script" not in Tags(face).seen
        assert "alert" in Tags(face).text


def test_they_print_in_one_line(run: Run) -> None:
    assert re.fullmatch(r"<Run .*H05.jsonl: 2 requests, \d+ steps, \d+ tokens>", repr(run))
    assert re.fullmatch(r"<Partition of .*H05.jsonl: 3 gaps, rules full, \d+ causes>", repr(sb.partition(run)))


def test_an_empty_run_shows_itself(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"stallbook": 1, "engine": "x"}\n')
    for face in faces(sb.open(tmp_path / "x.jsonl")):
        Tags(face)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_in_every_library(run: Run, table: str) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    arrow = run.to_arrow(table)
    rows = arrow.to_pylist()
    assert run.to_polars(table).to_dicts() == rows
    frame = run.to_pandas(table)
    assert list(frame.columns) == arrow.column_names
    assert frame.astype(object).where(frame.notna(), None).to_dict("records") == rows


def test_what_was_not_recorded_is_null() -> None:
    pytest.importorskip("pyarrow")
    run = sb.open(DATA / "scenarios" / "S01.jsonl")
    assert set(run.to_arrow("requests")["arrive_ns"].to_pylist()) == {None}
    assert set(run.to_arrow("steps")["kv_tokens"].to_pylist()) == {None}
    assert run.to_arrow("steps")["step"].to_pylist() == run.steps.id.tolist()
    assert set(run.to_arrow("segments")["name"].to_pylist()) <= set(run.names)


def test_whole_numbers_stay_exact_in_pandas(run: Run) -> None:
    pytest.importorskip("pandas")
    frame = run.to_pandas("segments")
    assert {str(kind) for kind in frame.dtypes} <= {"Int64", "category", "bool"}
    assert frame["t0_ns"].tolist() == run.segments.t0.tolist()


def test_gaps_as_frames(run: Run) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    p = sb.partition(run)
    rows = p.to_arrow().to_pylist()
    assert p.to_polars().to_dicts() == rows
    assert p.to_pandas()["gap_ns"].tolist() == [row["gap_ns"] for row in rows]
    assert str(p.to_pandas()["os_ns"].dtype) == "Int64"


@pytest.mark.parametrize(
    ("call", "library"), [("to_arrow", "pyarrow"), ("to_pandas", "pandas"), ("to_polars", "polars")]
)
def test_a_missing_library_is_named(run: Run, call: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(StallbookError, match=rf"{library}.*pip install") as error:
        getattr(run, call)()
    assert "\n" not in str(error.value)


def test_an_unknown_table_is_named(run: Run) -> None:
    with pytest.raises(StallbookError, match="segments"):
        run.to_arrow("segment")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """docs/notebook.md, cell by cell, over a log of the name that it uses."""
    for library in ("pandas", "polars", "perfetto"):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    sb.write(sb.open(DATA / "golden" / "baseline__s1.npz"), tmp_path / "out" / "demo-1.stall")
    page = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
    cells = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(cells) >= 5
    names: dict[str, Any] = {}
    for cell in cells:
        exec(compile(cell, "docs/notebook.md", "exec"), names)
