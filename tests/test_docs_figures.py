"""Every table of figures and every output in the documents stands beside its command, and cannot drift from what that
gave: it is made again here from kept results (`docs/results`), or its figures are those listed in `docs/figures.json`.

STALLBOOK_UPDATE_FIGURES=1 writes that list anew; do so only after the command has been run again.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stallbook.inject.report import to_text as accuracy_text
from stallbook.study.folder import read_study
from stallbook.study.pile_text import to_text as pile_text
from stallbook.study.tables import build, to_markdown

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
LISTED = DOCS / "figures.json"
PAGES = [TESTS.parent / "README.md", *sorted(DOCS.glob("*.md"))]

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
COMMAND = re.compile(
    r"(?:^ {4}|`)((?:stallbook|python|make|pytest|[A-Z_]+=\S+ (?:stallbook|pytest)) ?[^`\n]*)", re.MULTILINE
)
IN_PYTHON = re.compile(r"^(?: {4})?(import stallbook as sb)$", re.MULTILINE)
FIGURE = re.compile(
    r"\*{0,2}[-+<>~]?\d[\d,]*(\.\d+)?[kM]?( ?(%|ms|us|s|x|pt|MB|GB|points))?( (of|\(|\[)[^a-z]*)?\*{0,2}"
)
"""What a cell holds that is a figure and nothing else: `3.4%`, `9.9 [8.1-14.1]`, `100 of 100`, `7.8 (190x)`."""
OPTIONS = re.compile(r"<!-- options -->.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A table or an output, and what stands before it in its section."""

    text: str
    before: str

    @property
    def command(self) -> str:
        """The nearest command above it; "" if there is none."""
        found = [(m.start(), m[1].strip()) for kind in (COMMAND, IN_PYTHON) for m in kind.finditer(self.before)]
        return max(found)[1] if found else ""

    @property
    def figures(self) -> str:
        return " ".join(NUMBER.findall(self.text))


def blocks(page: Path) -> Iterator[Block]:
    """Those that hold figures. A table does if a cell beyond its first column is one."""
    text = OPTIONS.sub("", page.read_text(encoding="utf-8"))
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$|(?:^\|[^\n]*\n)+", section, re.DOTALL | re.MULTILINE):
            shown = found[2] if found[2] is not None else found[0]
            if found[2] is not None:
                figures = not found[1] and NUMBER.search(shown)
            else:
                cells = [cell.strip() for row in shown.splitlines()[2:] for cell in row.split("|")[2:-1]]
                figures = any(FIGURE.fullmatch(cell) for cell in cells)
            if figures:
                yield Block(shown, section[: found.start()])


def study(name: str, folder: Path) -> str:
    """The tables of a study whose results are kept."""
    kept = DOCS / "results" / name
    shutil.copy(kept / "study.json", folder)
    (folder / "results.jsonl").write_bytes(gzip.decompress((kept / "results.jsonl.gz").read_bytes()))
    return to_markdown(build(*read_study(folder)))


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What can be made again, by page. The example of report.md is held to its log by tests/report/test_golden.py."""
    pile = json.loads((TESTS / "study" / "gold" / "sixth_pile.json").read_text(encoding="utf-8"))
    accuracy = json.loads((DOCS / "results" / "accuracy.json").read_text(encoding="utf-8"))
    return {
        "ladder": "\n".join(study(name, tmp_path_factory.mktemp(name)) for name in ("ladder", "overload")),
        "rungs": study("rungs", tmp_path_factory.mktemp("rungs")),
        "sixth-pile": pile_text(pile),
        "accuracy": accuracy_text(accuracy),
        "report": (TESTS / "report" / "golden" / "baseline__s1.full.txt").read_text(encoding="utf-8"),
    }


def test_every_figure_has_its_command_and_its_source(again: dict[str, str]) -> None:
    told: dict[str, list[dict[str, str]]] = {}
    for page in PAGES:
        for block in blocks(page):
            assert block.command, f"{page.name}: no command beside\n{block.text}"
            if block.text not in again.get(page.stem, ""):
                told.setdefault(page.stem, []).append({"command": block.command, "figures": block.figures})
    if os.environ.get("STALLBOOK_UPDATE_FIGURES"):
        LISTED.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    assert told == json.loads(LISTED.read_text(encoding="utf-8"))


def test_what_can_be_made_again_is_not_merely_listed(again: dict[str, str]) -> None:
    """A table that no longer is what its results give would turn up as listed."""
    listed = json.loads(LISTED.read_text(encoding="utf-8"))
    made = {page: [b for b in blocks(DOCS / f"{page}.md") if b.text in text] for page, text in again.items()}
    assert {page: len(found) for page, found in made.items()} == {
        "ladder": 14, "rungs": 6, "sixth-pile": 1, "accuracy": 1, "report": 1,
    }  # fmt: skip
    assert not {"sixth-pile", "accuracy", "report"} & set(listed)
    assert len(listed["ladder"]) == 2  # what the watermark costs: from logs, not from a study's tables


def test_the_kept_results_are_shown() -> None:
    """Each file of docs/results is one that a page is made of."""
    assert {p.name for p in (DOCS / "results").iterdir()} == {"ladder", "overload", "rungs", "accuracy.json"}
