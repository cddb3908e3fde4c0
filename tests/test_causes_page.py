"""docs/causes.md has every cause, in order, and the fix that the advice names first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stallbook.advise.fixes import FIXES, fixes_of
from stallbook.causes import ORDER, OTHER

PAGE = (Path(__file__).parent.parent / "docs" / "causes.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## `([^`]+)`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_every_cause_has_a_section_in_order() -> None:
    assert list(SECTIONS) == [*ORDER, f"{OTHER}NAME"]


@pytest.mark.parametrize("cause", SECTIONS)
def test_each_says_how_it_looks_what_it_is_not_and_what_helps(cause: str) -> None:
    assert re.findall(r"^- \*\*(.+?)\*\*: \S", SECTIONS[cause], re.MULTILINE) == ["Looks like", "Confused with", "Fix"]


@pytest.mark.parametrize("cause", [c for c in SECTIONS if fixes_of(c)])
def test_the_first_fix_is_the_advice_s(cause: str) -> None:
    fix = SECTIONS[cause].split("- **Fix**: ")[1]
    assert fix.startswith(fixes_of(cause)[0].what.split(":")[0])


def test_what_has_no_fix_has_none() -> None:
    assert set(ORDER) - set(FIXES) == {"residual", "queue"}
