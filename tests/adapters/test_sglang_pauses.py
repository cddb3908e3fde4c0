"""A collection anywhere in SGLang's loops, against the same life without it: charged where it delayed a token, only."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sglang import Batch, Hooked, nothing
from fakes import MS, Clock, Stream, gaps

from stallbook.adapters.sglang import engine
from stallbook.notes import delays
from stallbook.notes.delays import AWAY_NS

PLACES = (
    "while it schedules", "before the forward pass", "after the forward pass", "before the result", "after the result",
    "between two passes",
)  # fmt: skip


def life(
    folder: Path, clock: Clock, overlap: bool, stream: Stream | None, place: str, ms: float,
    happens: Callable[[float], None] | None = None,
) -> list[dict[str, float]]:  # fmt: skip
    """The parts of each gap, of one request. In the fourth of six passes something `happens` at a place and takes `ms`;
    a collection, if nothing else is given.
    """
    served = Hooked(folder, clock, overlap=overlap, stream=stream)
    one, scheduler = served.req("r1", limit=6), served.scheduler
    passes = 0

    def collects(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            clock.go(ms)

    def at(now: str) -> None:
        if now == place and passes == 4 and ms and happens is not None:
            happens(ms)
        elif now == place and passes == 4 and ms:
            gc.callbacks.append(collects)
            gc.collect(0)
            gc.callbacks.remove(collects)

    scheduler.at = at
    running = Batch([one])
    for passes in range(1, 7):  # `at` looks
        batch = running if passes > 1 else Batch([one], [8])
        (scheduler.overlap if overlap else scheduler.normal)(batch, 10, lambda: at(PLACES[0]))
        at(PLACES[-1])
    scheduler.overlap(None) if overlap else nothing()
    served.close()
    return list(gaps(folder).values())


def longer(with_it: list[dict[str, float]], without: list[dict[str, float]]) -> list[float]:
    """By how much each gap is longer than it would have been."""
    return [sum(a.values()) - sum(b.values()) for a, b in zip(with_it, without, strict=True)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("loop", ["normal", "overlap"])
def test_without_a_device_a_pause_delays_one_token(loop: str, place: str, tmp_path: Path, clock: Clock) -> None:
    with_it, without = (life(tmp_path / f"{ms}.stall", clock, loop == "overlap", None, place, ms) for ms in (3, 0))
    late = longer(with_it, without)
    assert sorted(late) == [0, 0, 0, 0, 3]
    assert [parts.get("gc", 0) for parts in with_it] == late


@pytest.mark.parametrize(("place", "seen"), [*zip(PLACES, (0, 1, 3, 4, 0, 0), strict=True)])
def test_behind_a_device_a_pause_is_charged_for_what_it_delayed(
    place: str, seen: float, tmp_path: Path, clock: Clock, stream: Stream
) -> None:  # fmt: skip
    """2 ms are hidden. Of 9 the token waits for 4: for the pause, and for what the host has to do after it, which is
    charged as what it is: with the device idle it is that which the token waits for, the pause is over by then.
    """
    short, long, without = (life(tmp_path / f"{ms}.stall", clock, True, stream, place, ms) for ms in (2, 9, 0))
    assert short == without
    late = longer(long, without)
    assert max(late) == 4
    charged = [parts.get("gc", 0) for parts in long]
    assert charged == [seen if gap == 4 else 0 for gap in late]
    (parts,) = [parts for parts, gap in zip(long, late, strict=True) if gap == 4]
    assert sum(parts.values()) - parts["fwd"] - 1 == 4  # beside the device's own forward pass and sampling


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("loop", ["normal", "overlap"])
def test_a_wait_for_a_cpu_is_charged_to_the_token_it_delayed(
    loop: str, place: str, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The thread is looked at once a pass: a wait in the processing of a result comes after its token."""
    away = 0.0

    def wait(ms: float) -> None:
        nonlocal away
        away += ms
        clock.go(ms)

    monkeypatch.setattr(engine, "thread_cpu", lambda: clock.now - round(away * MS))
    monkeypatch.setattr(
        delays, "shared", lambda all_, waited: [n if n >= AWAY_NS else 0 for n in (a - b for a, b in all_)]
    )
    with_it, without = (
        life(tmp_path / f"{ms}.stall", clock, loop == "overlap", None, place, ms, wait) for ms in (3, 0)
    )
    late = longer(with_it, without)
    assert sorted(late) == [0, 0, 0, 0, 3]
    assert [parts.get("os", 0) for parts in with_it] == late
