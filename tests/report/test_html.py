"""The page: whole, offline, bounded in size, safe whatever the log holds, and readable without its pictures."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vl_convert")
pytest.importorskip("jinja2")

from page_logs import MS, busy, hostile, overloaded, partitioned

from stallbook.report.detail import details
from stallbook.report.html.page import WHOLE, page

HEADINGS = (
    "Gaps between tokens",
    "Where the tail’s time went",
    "The run over time",
    "The worst stalls",
    "Where the first token’s time went",
    "Collections, preemptions, graphs",
    "How far to trust this",
)


class Seen(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open and re.fullmatch(r"h\d", self.open[-1]):
            self.headings.append((int(self.open[-1][1]), data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(list(details([partitioned(tmp_path_factory.mktemp("log"), overloaded())])))


def test_it_has_every_section_and_its_headings_stand_in_order(one: str) -> None:
    seen = Seen(one)
    levels = [level for level, _ in seen.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert [name for level, name in seen.headings if level == 2] == list(HEADINGS)


def test_the_answer_stands_on_top_with_what_it_would_be_worth(one: str) -> None:
    assert re.search(r"<h1>\d+% of the tail&#39;s time is preempt; p99 is [\d.,]+ m?s, ", one)


def test_it_asks_for_nothing(one: str) -> None:
    assert "http" not in re.sub(r'"http" \+ ":', "", one).replace("http-equiv", "")
    assert not re.search(r"@import|url\(", one)
    seen = Seen(one)
    assert {a.get("href") for a in seen.all("link")} == {"data:,"}
    assert all((a.get("href") or "").startswith("#") for a in seen.all("a"))
    for tag in ("img", "iframe", "object", "embed", "source", "base", "form"):
        assert not seen.all(tag)
    policy = next(m["content"] for m in seen.all("meta") if m.get("http-equiv"))
    assert policy
    assert policy.startswith("default-src 'none'")


def test_every_chart_is_called_something_and_has_both_widths(one: str) -> None:
    seen = Seen(one)
    figures = len(seen.all("figure"))
    assert figures >= 7
    assert len(seen.all("svg")) == 2 * figures
    for svg in seen.all("svg"):
        assert svg["role"] == "img"
        assert len(svg["aria-label"] or "") > 40
    assert len([b for b in seen.all("button") if b["data-save"] in ("svg", "png") and b["aria-label"]]) == 2 * figures
    ids = [a["id"] for _, a in seen.tags if a.get("id")]
    assert len(ids) == len(set(ids))


def test_every_stall_has_its_picture_and_what_it_rules_out(one: str) -> None:
    titles = re.findall(r'<figure id="stall-\d+" data-title="([^"]+)"', one)
    assert len(titles) >= 3
    assert any("preempt" in title for title in titles)
    assert any("prefill" in title for title in titles)
    assert one.count("<p>Who else: ") == len(titles)
    assert "rules out" in one


def test_colours_are_of_the_palette_and_follow_the_theme(one: str) -> None:
    charts = "".join(re.findall(r"<svg.*?</svg>", one, re.DOTALL))
    painted = set(re.findall(r'(?:fill|stroke)="([^"]*)"', charts))
    assert painted <= {p for p in painted if p.startswith("var(--")} | {"none", "transparent"}
    defined = set(re.findall(r"(--[\w-]+):#", one))
    assert {p[4:-1] for p in painted if p.startswith("var(")} <= defined
    assert "prefers-color-scheme:dark" in one
    assert "@media print" in one


def test_what_a_log_holds_is_text_and_never_markup(tmp_path: Path) -> None:
    name = '"><script>alert(1)</script>'
    drawn = page(list(details([partitioned(tmp_path, hostile(name), engine=f"<img src=x onerror=alert(1)>{name}")])))
    assert "<script>alert" not in drawn
    assert "<img" not in drawn
    assert drawn.count("<script>") == 1
    assert "&lt;script&gt;alert(1)" in drawn
    assert len(Seen(drawn).all("script")) == 1


def test_a_run_without_gaps_has_a_page(tmp_path: Path) -> None:
    drawn = page(list(details([partitioned(tmp_path, busy(steps=1))])))
    assert "<h1>No gaps: " in drawn
    assert 'id="histogram"' not in drawn


def test_few_runs_stand_whole_beside_each_other_and_many_folded(tmp_path: Path) -> None:
    p = [partitioned(tmp_path, overloaded(), name=f"{rung}__s{seed}") for rung in ("base", "fixed") for seed in (1, 2)]
    two = page(list(details(p[:2])))
    four = page(list(details(p)))
    assert len(p) > WHOLE
    assert two.count("The worst stalls</h3>") == 2
    for drawn in (two, four):
        ids = [a["id"] for _, a in Seen(drawn).tags if a.get("id")]
        assert len(ids) == len(set(ids))
        assert {"rungs-itl", "rungs-tail", "rungs-ttft"} <= set(ids)
    assert re.search(r"<h1>base → fixed: p99 [\d.,]+ m?s → [\d.,]+ m?s", four)
    assert "The worst stalls" not in four
    assert re.search(r'<th scope="row">base</th><td>2</td>', four)


def test_a_page_grows_with_nothing_but_the_number_of_its_charts(tmp_path: Path) -> None:
    small = page(list(details([partitioned(tmp_path, busy(steps=300), name="small")])))
    large = page(list(details([partitioned(tmp_path, busy(steps=6000, requests=12), name="large")])))
    assert len(small) < 1_000_000
    assert len(large) < 1_500_000


def test_the_data_of_the_charts_stands_in_tables_too(one: str) -> None:
    captions = re.findall(r"<caption>(.*?)</caption>", one)
    for needed in ("Gaps by length and primary cause", "Gaps by when they end", "Waits by cause"):
        assert needed in captions


def test_the_picture_of_a_run_and_of_several_is_a_png(tmp_path: Path) -> None:
    from stallbook.report.html.picture import picture

    found = list(details([partitioned(tmp_path, overloaded(), name=f"x__s{i}") for i in (1, 2)]))
    for drawn in (picture(found[:1]), picture(found)):
        assert drawn.startswith(b"\x89PNG\r\n")
        assert len(drawn) < 1_000_000


def test_at_another_boundary_the_stalls_are_its_own(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = overloaded()
    emitted = [line for line in lines if line["e"] == "emit" and "a" in line["tokens"]]
    for i, line in enumerate(emitted):
        late = 300 * MS if i > 40 else 2 * MS
        told = {"request": "a", "tokens": 1, "boundary": "client"}
        lines.append({"e": "deliver", "t": line["t"] + late, **told})
    drawn = page(list(details([partitioned(tmp_path, lines)], "client")))
    assert "Gaps at the engine</h2>" in drawn
    assert "frontend" in re.findall(r'<figure id="stall-1" data-title="([^"]+)"', drawn)[0]


def test_without_the_extra_one_line_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import builtins

    from stallbook.cli import main

    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "vl_convert":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    log = tmp_path / "x.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in ({"stallbook": 1, "engine": "x"}, *busy())))
    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(__import__("sys").modules, "vl_convert", raising=False)
    assert main(["report", str(log), "--format", "html", "--out", str(tmp_path / "x.html")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "pip install 'stallbook[report]'" in told
    assert not (tmp_path / "x.html").exists()


def test_the_command_writes_a_whole_file_and_overwrites_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from stallbook.cli import main

    log, out = tmp_path / "x.jsonl", tmp_path / "x.html"
    log.write_text("".join(json.dumps(line) + "\n" for line in ({"stallbook": 1, "engine": "x"}, *busy())))
    command = ["report", str(log), "--format", "html", "--out", str(out)]
    assert main(command) == 0
    assert out.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert main([*command[:3], "png", "--out", str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.html", "x.jsonl", "x.png"]
