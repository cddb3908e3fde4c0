"""What any engine's fake needs: a clock that a test moves, a device on it, and how a log reads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import stallbook as sb
from stallbook.notes import delays

MS = 1_000_000
START = 1_000 * MS


class Clock:
    """A clock that stands until it is told to go on."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def go(self, ms: float) -> int:
        """Let so much time pass."""
        self.now += round(ms * MS)
        return self.now

    def to(self, ms: float) -> None:
        """Let it be so many ms after the start."""
        assert START + ms * MS >= self.now
        self.now = START + round(ms * MS)


class Stream:
    """A device that works off what it is given, on a clock of its own."""

    def __init__(self, clock: Clock, ahead_ms: float = 0) -> None:
        self.clock, self.free, self.ahead = clock, 0, round(ahead_ms * MS)

    def work(self, ms: float) -> None:
        self.free = max(self.free, self.clock.now) + round(ms * MS)

    def event(self, enable_timing: bool = False) -> Event:
        assert enable_timing
        return Event(self)


class Event:
    """A `torch.cuda.Event`."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.t = stream, 0

    def record(self) -> None:
        self.t = max(self.stream.free, self.stream.clock.now)

    def synchronize(self) -> None:
        self.stream.clock.now = max(self.stream.clock.now, self.t)

    def query(self) -> bool:
        return self.stream.clock.now >= self.t

    def elapsed_time(self, other: Event) -> float:
        return (other.t - self.t) / MS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock, on which no thread was ever off the CPU, and no collection runs but those that a test plants."""
    monkeypatch.setattr(delays, "shared", lambda stretches, waited: [0] * len(stretches))
    gc.disable()
    yield Clock()
    gc.enable()


@pytest.fixture
def stream(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The only device."""
    made = Stream(clock)
    cuda = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, Event=made.event)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return made


def gaps(folder: Path) -> dict[tuple[str, float], dict[str, float]]:
    """The parts of each gap in ms, by request and by when it began."""
    p = sb.partition(sb.open(folder))
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
    names = p.run.requests.names
    out = {}
    for who, t0, row in zip(p.gaps.request, p.gaps.t0, p.parts(), strict=True):
        told = {cause: float(ns) / MS for cause, ns in zip(p.causes, row, strict=True) if ns}
        out[names[who], (int(t0) - START) / MS] = told
    return out
