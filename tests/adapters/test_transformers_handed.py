"""Tokens that are put together to deliveries, against a list of them all."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from stallbook.adapters.transformers import handed as module
from stallbook.adapters.transformers.handed import Delivery, Handed

US, NEVER = 1_000, 1 << 62

Token = tuple[str, int, int]


def whole(taken: list[Delivery | int]) -> list[Delivery]:
    """Those that were like the one before them, in full."""
    told = list[Delivery]()
    for one in taken:
        told.append(one if isinstance(one, tuple) else (told[-1][0], [1] * len(told[-1][0]), one))
    return told


def alike(taken: list[Delivery | int]) -> int:
    return sum(isinstance(one, int) for one in taken)


def test_the_same_requests_again_leave_no_more_than_a_time() -> None:
    handed = Handed()
    for step in range(100):
        for i, name in enumerate("abcd"):
            handed.put(name, 1, step * 10_000 * US + i * 100 * US)
    taken = handed.take(NEVER)
    assert taken[0] == (["a", "b", "c", "d"], [1, 1, 1, 1], 300 * US)
    assert taken[1:] == [step * 10_000 * US + 300 * US for step in range(1, 100)]
    assert not handed


def test_one_that_may_go_on_is_not_taken() -> None:
    handed = Handed()
    handed.put("a", 1, 0)
    handed.put("b", 1, 100 * US)
    assert handed.take(500 * US) == []
    assert handed
    handed.put("c", 2, 900 * US)
    assert handed.take(2_000 * US) == [(["a", "b", "c"], [1, 1, 2], 900 * US)]
    handed.put("a", 1, 3_000 * US)
    assert handed.take(NEVER) == [(["a"], [1], 3_000 * US)]


@pytest.mark.parametrize("late", [200, 2_000])
def test_one_that_stops_half_way_is_told_in_full(late: int) -> None:
    handed = Handed()
    for t in (0, 10_000):
        for name in "abc":
            handed.put(name, 1, t * US)
    handed.put("a", 1, 20_000 * US)
    handed.put("d", 1, (20_000 + late) * US)
    told = whole(handed.take(NEVER))
    assert told[:2] == [(["a", "b", "c"], [1, 1, 1], 0), (["a", "b", "c"], [1, 1, 1], 10_000 * US)]
    both = [(["a", "d"], [1, 1], 20_200 * US)]
    assert told[2:] == (both if late == 200 else [(["a"], [1], 20_000 * US), (["d"], [1], 22_000 * US)])


def test_if_nobody_takes_them_the_next_is_told_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 5)
    handed = Handed()
    for step in range(9):
        for name in "ab":
            handed.put(name, 1, step * 10_000 * US)
    taken = handed.take(NEVER)
    assert 0 < len(taken) <= 5
    assert isinstance(taken[0], tuple)
    assert whole(taken)[-1] == (["a", "b"], [1, 1], 80_000 * US)


@pytest.mark.parametrize("seed", range(40))
def test_every_token_is_told_once_and_in_its_order(seed: int) -> None:
    random, handed = Random(seed), Handed()
    put, taken, t = list[Token](), list[Delivery | int](), 0
    running = [f"r{i}" for i in range(random.randint(1, 6))]
    for step in range(300):
        if random.random() < 0.05:
            running = random.sample(running, len(running))
        if random.random() < 0.1:
            running = [*running, f"n{step}"][-random.randint(1, 7) :]
        for name in running:
            if random.random() < 0.01:
                continue
            t += random.choice((0, 1, 10, 100, 1_000, 1_001 if random.random() < 0.02 else 5)) * US
            put.append((name, random.choice((0, 2)) if random.random() < 0.01 else 1, t))
            handed.put(*put[-1])
            if random.random() < 0.01:
                taken += handed.take(t + random.choice((0, 500, 5_000)) * US)
        t += random.choice((5, 500, 20_000)) * US
    taken += handed.take(NEVER)
    assert not handed
    told, at = whole(taken), 0
    for names, tokens, when in told:
        mine = put[at : at + len(names)]
        at += len(names)
        assert [(name, n) for name, n, _ in mine] == list(zip(names, tokens, strict=True))
        assert len(set(names)) == len(names)
        assert when == mine[-1][2]
        assert all(b[2] - a[2] <= 1_000 * US for a, b in pairwise(mine))
    assert at == len(put)
    assert alike(taken) > 100
