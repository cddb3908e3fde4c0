"""The example in the docs runs, and its log reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from recordings import read

DOCS = Path(__file__).parent.parent.parent / "docs" / "recorder.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = DOCS.read_text().split("<!-- example -->\n```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(DOCS), "exec"), {})
    run = read(tmp_path / "my.stall")
    assert int(run.emissions.tokens.sum()) == 6 * 20
    assert set(run.names) >= {"sched", "decode"}
    assert not run.notes
