"""On real runs of the ladder, advice names the fix of the rung that comes next for each cause: `pytest -m slow`.

STALLBOOK_LADDER=FOLDER takes a study that is there; without it, a quick one is made, which takes three minutes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import stallbook as sb
from stallbook.advise import advise
from stallbook.cli import main
from stallbook.study.rungs import RUNGS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("STALLBOOK_LADDER"):
        return Path(given)
    folder = tmp_path_factory.mktemp("study") / "ladder"
    assert main(["ladder", "--quick", "--out", str(folder)]) == 0
    return folder


def test_each_cause_gets_the_fix_of_the_next_rung_that_is_meant_for_it(ladder: Path) -> None:
    """Where a rung above is meant for a cause with over 5% of the tail; those that lead the tail are counted."""
    led = checked = 0
    for at, rung in enumerate(RUNGS):
        for log in sorted(ladder.glob(f"{rung.slug}__s*.stall")):
            for i, finding in enumerate(advise(sb.partition(sb.open(log))).findings):
                above = next((r for r in RUNGS[at + 1 :] if r.cause == finding.cause), None)
                if above is None:
                    continue
                (name,) = above.delta
                assert finding.next is not None, (log, finding.cause)
                assert finding.next.settings[0].flag == f"--{name.replace('_', '-')}", (log, finding.cause)
                checked, led = checked + 1, led + (i == 0)
    print(f"{checked} causes checked, {led} of them lead their tail")
    assert led
