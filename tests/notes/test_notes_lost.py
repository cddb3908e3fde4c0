"""A record of notes that is lost costs what was in it; the reader sees by the numbers that it is."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import stallbook as sb
from stallbook.notes import sglang as s
from stallbook.notes import transformers as t
from stallbook.notes.words import BLOCKED
from stallbook.record import WholeRecorder
from stallbook.run import Run


def recorded(
    folder: Path, teller: str, names: Sequence[str], notes: Sequence[Sequence[int] | None], **more: Any
) -> Run:
    """The log of two requests, of handles 0 and 1, and of these notes; None is one that was lost."""
    made = WholeRecorder(folder, engine="tiny 1", os_counters="segment" if teller == "sglang" else "step")
    for name in names:
        made.name(name)
    made.noted(teller, os=made.os_counters, **more)
    for name in "ab":
        made.arrive(name, 8, 100, t=0)
    for number, told in enumerate(notes, 1):
        if told is not None:
            made.note(number * 1000, 0, number, array("q", [*told, BLOCKED, 0]))
    made.close()
    return sb.open(folder)


def test_with_a_step_always_in_flight(tmp_path: Path) -> None:
    """Transformers: a record begins with the tokens of a step that the one before it told."""
    notes: list[list[int] | None] = [[t.RENEWED, 64]]
    step = 0
    for flush in range(10):
        told: list[int] = [t.PLAN, 1, 0, 1, 1]
        for _ in range(20):
            step += 1
            told += (t.SCHEDULED, step, 10 * step, 10 * step + 1)
            if step > 1:
                told += (t.EMITTED, step - 1, 10 * step + 3, 10 * step + 4, 0, 0)
        notes.append(None if flush == 2 else told)
    run = recorded(tmp_path / "a.stall", "transformers", t.NAMES, notes)
    assert run.notes == {"untold_notes": 1}
    assert run.steps.id.tolist() == [*range(1, 40), *range(61, 200)]  # 40 was in flight, and 60 is told in what is lost


def test_a_batch_whose_step_was_lost_is_not_repeated_as_the_one_before(tmp_path: Path) -> None:
    def emitted(step: int, request: int) -> list[int]:
        return [s.EMITTED, step, 10 * step + 5, 10 * step + 6, 0, 1, 0, -1, 1, 0, request, step]

    def planned(step: int) -> list[int]:
        return [s.PLANNED, step, 10 * step, 10 * step + 1, -1, s.RAN, step, 0, -1]

    again = [word for step in (3, 4) for word in (*planned(step), s.REPEATED, step, 10 * step + 5, 10 * step + 6, 0)]
    notes = [[*planned(1), *emitted(1, 0)], None, [*emitted(2, 1), *again]]
    run = recorded(tmp_path / "a.stall", "sglang", s.NAMES, notes, chunk=64)
    assert run.notes == {"untold_notes": 1}
    assert [run.requests.names[one] for one in run.emissions.request.tolist()] == ["a", "b", "b"]
