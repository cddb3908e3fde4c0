"""Compare text with a kept file; STALLBOOK_UPDATE_GOLDEN=1 rewrites the files instead (read the diff then)."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("STALLBOOK_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def check_block(path: Path, name: str, text: str) -> None:
    """The same for the part of a page between `<!-- name -->` and `<!-- name end -->`."""
    page = path.read_text(encoding="utf-8")
    before, start, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- {name} end -->")
    assert start
    assert end
    if os.environ.get("STALLBOOK_UPDATE_GOLDEN"):
        page = before + start + text + end + after
        path.write_text(page, encoding="utf-8")
    assert text in page
