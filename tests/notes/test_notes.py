"""Notes on their way through a spool: what makes no sense is counted, and costs nothing but itself."""

from __future__ import annotations

from array import array
from pathlib import Path
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import stallbook as sb
from stallbook.errors import StallbookError
from stallbook.notes import sglang, teller, transformers, vllm, words
from stallbook.record import WholeRecorder

SETTINGS: dict[str, dict[str, Any]] = {
    "vllm": {"apart": False, "most": 64}, "sglang": {"chunk": 64}, "transformers": {},
}  # fmt: skip
NAMES = {
    "vllm": vllm.names(apart=False), "sglang": sglang.NAMES, "transformers": transformers.NAMES,
}  # fmt: skip


NUMBERS = WeakKeyDictionary[WholeRecorder, int]()


def recorder(folder: Path, engine: str) -> WholeRecorder:
    """One whose notes are told as that engine's."""
    made = WholeRecorder(folder, engine="tiny 1", os_counters="segment" if engine == "sglang" else "step")
    for name in NAMES[engine]:
        made.name(name)
    made.noted(engine, os=made.os_counters, **SETTINGS[engine])
    return made


def note(made: WholeRecorder, *told: int, number: int = 0) -> None:
    """number: where some before were lost."""
    NUMBERS[made] = number or NUMBERS.get(made, 0) + 1
    made.note(1_000, 0, NUMBERS[made], array("q", told))


def a_step(number: int, t: int) -> tuple[int, ...]:
    """One of vLLM's, in which requests 0 and 1 get a token each."""
    scheduled = (vllm.SCHEDULED, number, t, t + 1, 0, 2)
    return (*scheduled, vllm.EMITTED, number, t + 5, t + 6, 0, 2, *(2, 0, 1, 1, 1) * 2)


def test_notes_become_steps_at_their_place(tmp_path: Path) -> None:
    made = recorder(tmp_path / "a.stall", "vllm")
    for name in "ab":
        made.arrive(name, 8, 8, t=0)
    for number in range(1, 4):
        note(made, *a_step(number, 10 * number), words.BLOCKED, 0)
    made.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.notes == {}
    assert run.steps.id.tolist() == [1, 2, 3]
    assert run.steps.emit.tolist() == [15, 25, 35]
    assert run.emissions.tokens.tolist() == [1] * 6
    assert run.steps.blocked.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "broken", [(99,), (vllm.SCHEDULED, 2), (vllm.EMITTED, 2, 0, 0, 0, 0, -5), (vllm.EVICTED, 1 << 40, 0, 0)]
)
def test_one_that_makes_no_sense_costs_itself_alone(broken: tuple[int, ...], tmp_path: Path) -> None:
    made = recorder(tmp_path / "a.stall", "vllm")
    for name in "ab":
        made.arrive(name, 8, 8, t=0)
    note(made, *a_step(1, 10))
    note(made, *a_step(2, 20), *broken)
    note(made, *a_step(3, 30))
    made.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.notes == {"untold_notes": 1}
    assert run.steps.id.tolist() == [1, 3]
    assert run.steps.emit.tolist() == [15, 35]
    assert run.emissions.tokens.tolist() == [1] * 4


def test_notes_that_nobody_announced(tmp_path: Path) -> None:
    made = WholeRecorder(tmp_path / "a.stall", engine="tiny 1")
    note(made, *a_step(1, 10))
    made.close()
    assert sb.open(tmp_path / "a.stall").notes == {"untold_notes": 1}


def test_a_teller_that_this_version_lacks_is_an_error_in_one_line(tmp_path: Path) -> None:
    made = WholeRecorder(tmp_path / "a.stall", engine="tiny 1")
    made.noted("somebody else")
    made.close()
    with pytest.raises(StallbookError, match="makes no sense") as told:
        sb.open(tmp_path / "a.stall")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("engine", SETTINGS)
@pytest.mark.parametrize("seed", range(20))
def test_no_notes_bring_a_reader_down(engine: str, seed: int, tmp_path: Path) -> None:
    """Kinds that exist, with words that do not."""
    rng, made = Random(seed), recorder(tmp_path / "a.stall", engine)
    kinds = list(
        teller({"names": dict.fromkeys(NAMES[engine], 0), "os": None, "teller": engine} | SETTINGS[engine]).kinds
    )  # type: ignore[attr-defined]
    for _ in range(60):
        told: list[int] = []
        for _ in range(rng.randrange(1, 8)):
            told.append(rng.choice(kinds))
            told += [rng.choice((-1, 0, 1, 2, 3, rng.randrange(-(2**63), 2**63))) for _ in range(rng.randrange(9))]
        note(made, *told)
    made.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.notes["untold_notes"] > 0
    sb.partition(run)
