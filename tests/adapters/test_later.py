"""The account that hooks keep of themselves: what entries cost to leave and to work off, each counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stallbook as sb
from stallbook.adapters import later as module
from stallbook.adapters.hooks import Hooks
from stallbook.adapters.later import CALL_NS, Later
from stallbook.record import WholeRecorder
from stallbook.record.whole import _CALL_NS as EVENT_NS


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread's CPU time, to be moved."""
    now = [0]
    monkeypatch.setattr(module, "thread_cpu", lambda: now[0])
    return now


@pytest.mark.parametrize("others", [0, 3])
def test_events_that_are_recorded_while_entries_are_worked_off_are_counted_with_these(
    tmp_path: Path, cpu: list[int], others: int
) -> None:
    recorder = WholeRecorder(tmp_path / "a.stall", engine="tiny 1")

    def work(entries: list[Any]) -> None:
        for name in entries:
            recorder.arrive(name, 8, 8)
        cpu[0] += 50_000

    before = recorder.self_ns
    recorder.arrive("on its own", 8, 8)
    assert recorder.self_ns - before == EVENT_NS
    later = Later(work, recorder, Hooks(), lambda: 0, others)
    for name in ("r1", "r2", "r3", "r4"):
        later.entries.append(name)
    later.steps = 2
    before = recorder.self_ns
    later.flush()
    spent = 50_000 + 2 * (2 + others) * CALL_NS
    assert recorder.self_ns - before == spent + EVENT_NS  # and its books
    assert not later.entries
    assert sb.open(tmp_path / "a.stall").facts["recorder"]["self_ns"] == before + spent
    events = recorder.events
    later.flush()
    assert recorder.events == events
    recorder.close()
