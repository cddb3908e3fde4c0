"""The vectorised parts against slow, obvious ones."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

from stallbook.errors import StallbookError
from stallbook.log.arrays import order, stable_order
from stallbook.log.draft import Draft
from stallbook.run import NEVER


def crosses(windows: list[tuple[int, int]]) -> bool:
    return any(a[0] < b[0] < a[1] < b[1] for a in windows for b in windows)


@pytest.mark.parametrize("seed", range(3))
def test_crossing_segments_are_found_and_no_others(seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(250):
        draft = Draft(path="made", unit="row")
        lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
        name = draft.name("x")
        for number in range(2):
            draft.add("steps", id=number, t0=0, t1=20)
        for row in range(rng.randint(1, 7)):
            low = rng.randint(0, 12)
            high = low + rng.choice([0, 1, 2, 5, 8])
            lane = rng.randrange(2), rng.randrange(2)
            lanes.setdefault(lane, []).append((low, high))
            draft.add("segments", step=lane[0], device=lane[1], name=name, t0=low, t1=high, origin=row)
        bad = any(map(crosses, lanes.values()))
        found += bad
        if bad:
            with pytest.raises(StallbookError) as caught:
                draft.finish()
            assert caught.value.slug == "crossing"
        else:
            draft.finish()
    assert 20 < found < 230


def union(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(windows):
        if merged and low < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged


@pytest.mark.parametrize("seed", range(3))
def test_windows_are_merged_as_one_would_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        draft = Draft(path="made", unit="row")
        told: dict[int, list[tuple[int, int]]] = {}
        for _ in range(rng.randint(0, 12)):
            low, who = rng.randint(0, 30), rng.randrange(3)
            high = rng.choice([low, low + 1, low + 3, low + 9, NEVER])
            told.setdefault(who, []).append((low, high))
            draft.add("evictions", request=draft.request(str(who)), t0=low, t1=high)
        run = draft.finish()
        expected = {str(who): union(windows) for who, windows in told.items()}
        got: dict[str, list[tuple[int, int]]] = {}
        for i, who in enumerate(run.evictions.request.tolist()):
            window = int(run.evictions.t0[i]), int(run.evictions.t1[i])
            got.setdefault(run.requests.names[who], []).append(window)
        assert got == expected
        merged = sum(map(len, told.values())) - sum(map(len, expected.values()))
        assert run.notes.get("merged_evictions", 0) == merged


def test_rows_are_put_in_order() -> None:
    rng = np.random.default_rng(1)
    for size in (10, 70_000, 2**33):
        key = rng.integers(0, size, 1000)
        assert np.array_equal(stable_order(key, size), np.argsort(key, kind="stable"))
    a, b = rng.integers(0, 5, 100), rng.integers(0, 5, 100)
    rows = order(a, b)
    assert rows is not None
    assert np.array_equal(rows, np.lexsort((b, a)))
    assert order(a[rows], b[rows]) is None


def test_columns_of_a_draft() -> None:
    draft = Draft(path="x.stall", unit="step")
    draft.extend("steps", {"id": np.arange(3), "t0": np.arange(3), "t1": 9})
    draft.add("steps", id=7, t0=8, t1=9, cpu=4, origin=7)
    table = draft.table("steps")
    assert table["id"].tolist() == [0, 1, 2, 7]
    assert table["cpu"].tolist() == [-1, -1, -1, 4]
    assert table["origin"].tolist() == [-1, -1, -1, 7]
    assert draft.place("steps", 7) == "x.stall: step 7"
    assert draft.place("steps", -1) == "x.stall"
    with pytest.raises(TypeError, match="no column"):
        draft.add("steps", name=3)
    with pytest.raises(TypeError, match="no column"):
        draft.extend("steps", {"name": np.arange(3)})


def test_an_engine_that_records_loads_no_numpy() -> None:
    code = "import sys, stallbook.record; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
