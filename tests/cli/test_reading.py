"""The bar of a long reading: on a terminal, after a moment, and gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallbook.cli import reading as module
from stallbook.cli.reading import reading


def test_a_short_reading_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with reading(Path("a.log")) as tell:
        tell(1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("watched", [True, False])
def test_a_long_one_says_how_far_it_is(
    watched: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOMENT_S", 0.0)
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: watched)
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if watched else "0")
    with reading(Path("a[b]\x1b.log")) as tell:
        tell(1, 4)
        tell(2, 4)
    told = capsys.readouterr().err
    assert "reading a[b]?.log" in told
    assert ("50%" in told) == watched
    assert (told == "reading a[b]?.log ...\n") == (not watched)
