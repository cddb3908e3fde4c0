"""Whatever a file holds: a run, or one error that names it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logfiles import SCENARIOS, attempt

from stallbook.run import Run

SOURCES = [path.read_bytes() for path in SCENARIOS if path.stem in {"H03", "H05", "H06", "S05", "X16"}]
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**61, 2**62, 2**63, -(2**63), 10**30, 0.5, 1e300, "", "r1", "\0", "é", [], {}, ["r1"],
    {"r1": 1}, {"r1": "x"}, [[]],
]  # fmt: skip


def survives(path: Path, content: bytes) -> bool:
    """Did it open? Anything but a run or one line of error fails the test."""
    path.write_bytes(content)
    return isinstance(attempt(path), Run)


@given(content=st.binary(max_size=200))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes(content: bytes, tmp_path: Path) -> None:
    survives(tmp_path / "a.jsonl", content)
    survives(tmp_path / "a.jsonl", b'{"stallbook": 1}\n' + content)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_and_moved_lines(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    opened = 0
    for _ in range(200):
        lines = rng.choice(SOURCES).splitlines(keepends=True)
        for _ in range(rng.randint(1, 3)):
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            match rng.randrange(5):
                case 0:
                    lines[i], lines[j] = lines[j], lines[i]
                case 1:
                    lines.insert(i, lines[j])
                case 2:
                    lines[i] = b""
                case 3:
                    lines[i] = lines[i][: rng.randrange(len(lines[i]) + 1)]
                case 4 if lines[i]:
                    at = rng.randrange(len(lines[i]))
                    lines[i] = lines[i][:at] + bytes([rng.randrange(256)]) + lines[i][at + 1 :]
        opened += survives(tmp_path / "a.jsonl", b"".join(lines))
    assert 0 < opened < 200


@pytest.mark.parametrize("seed", range(4))
def test_changed_values(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    opened = 0
    for _ in range(200):
        events = [json.loads(line) for line in rng.choice(SOURCES).splitlines()]
        for _ in range(rng.randint(1, 2)):
            event = rng.choice(events)
            key = rng.choice(list(event))
            match rng.randrange(4):
                case 0:
                    del event[key]
                case 1 if isinstance(event[key], int):
                    event[key] += rng.choice([-1, 1]) * rng.choice([1, 10**6, 10**7, 10**9])
                case _:
                    event[key] = rng.choice(VALUES)
            if not event:
                events.remove(event)
        opened += survives(tmp_path / "a.jsonl", "".join(json.dumps(e) + "\n" for e in events).encode())
    assert 0 < opened < 200


def test_every_cut_of_a_file(tmp_path: Path) -> None:
    whole = SOURCES[0]
    header = whole.index(b"\n") + 1
    for size in range(0, len(whole), 13):
        opened = survives(tmp_path / "a.jsonl", whole[:size])
        assert opened == (size >= header - 1), size
