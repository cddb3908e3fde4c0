"""The outputs in the documents that are of the ladder's own logs, printed again from those logs, to the letter.

STALLBOOK_LADDER=ladder pytest -m slow tests/test_docs_ladder.py
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from stallbook.cli import main
from test_docs_figures import DOCS, blocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("STALLBOOK_LADDER" not in os.environ, reason="STALLBOOK_LADDER names no study's folder"),
]


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command of a page prints in the folder that holds the study."""
    words: list[str] = []
    for word in shlex.split(re.sub(r"\\\n\s*", "", command)):
        words += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    assert main(words[1:]) in (0, 1), command
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("page", "which", "command"),
    [
        ("compare", 0, r"^    (stallbook compare ladder/admit.*)$"),
        ("advise", 0, r"^    (stallbook advise ladder/gc-freeze__s3.*)$"),
        ("advise", 1, r"^    (stallbook advise ladder --brief)$"),
        ("check", 0, r"^    (stallbook check baseline__s\*(?:.*\\\n)*.*)--format junit"),
    ],
)
def test_what_a_page_shows_is_what_the_command_prints(
    page: str, which: int, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder = Path(os.environ["STALLBOOK_LADDER"]).resolve()
    monkeypatch.chdir(ladder if page == "check" else ladder.parent)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    (asked,) = re.findall(command, text, re.MULTILINE)
    out = printed(asked, capsys)
    shown = list(blocks(DOCS / f"{page}.md"))[which].text
    at = 0
    for part in shown.split("\n...\n"):  # what was left out on the page
        at = out.index(part.strip("\n"), at)
    assert "..." in shown or shown == out
