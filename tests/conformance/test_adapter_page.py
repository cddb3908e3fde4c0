"""The page on adapters holds the toy's adapter and harness as they are. STALLBOOK_UPDATE_GOLDEN=1 rewrites it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "adapters.md"
FEWER = 80


@pytest.mark.parametrize("name", ["toy_adapter.py", "toy_harness.py"])
def test_the_page_holds_the_code(name: str) -> None:
    block = f"<!-- {name} -->\n```python\n{(HERE / name).read_text()}```\n<!-- end -->"
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("STALLBOOK_UPDATE_GOLDEN"):
        text = re.sub(rf"<!-- {re.escape(name)} -->\n.*?<!-- end -->", lambda _: block, text, flags=re.DOTALL)
        PAGE.write_text(text, encoding="utf-8")
    assert block in text


@pytest.mark.parametrize("name", ["toy_adapter.py", "toy_harness.py"])
def test_it_takes_less_than_eighty_lines(name: str) -> None:
    assert len((HERE / name).read_text().splitlines()) < FEWER


def test_the_toy_engine_knows_nothing_of_stallbook() -> None:
    code = (HERE / "toy_engine.py").read_text().partition('"""\n\n')[2]
    assert "stallbook" not in code
