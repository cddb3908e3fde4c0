"""A recorder on a clock that tests turn by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import Clock

from stallbook.record import Recorder

sys.path.insert(0, str(Path(__file__).parent.parent))  # for what tests of all parts share


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "run.stall"


@pytest.fixture
def recorder(log: Path, clock: Clock) -> Callable[..., Recorder]:
    def make(**settings: Any) -> Recorder:
        given = {"engine": "test 1", "clock": clock, "os_counters": None, "gc_pauses": False, "strict": True}
        return Recorder(log, **(given | settings))

    return make
