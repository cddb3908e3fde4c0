"""What the recorder measures of the engine's thread, and of itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from recordings import Clock, read

from stallbook.record import Recorder

Make = Callable[..., Recorder]


def test_os_counters_of_a_segment(recorder: Make, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Delays:
        at, calls = -(10**9), 0

        def delta(self, now: int) -> int:
            self.calls += 1
            return self.calls

        def close(self) -> None: ...

    cpu = itertools.count(500, 7)
    monkeypatch.setattr("stallbook.record.samplers.RunDelay", Delays)
    monkeypatch.setattr("stallbook.record.samplers._thread_time", cpu.__next__)
    with recorder(os_counters="segment") as rec:
        if rec.os_counters is None:
            pytest.skip("this kernel does not count run-queue delay")
        name = rec.name("decode")
        rec.begin()
        rec.enter(name)
        rec.enter(name)
        rec.leave()
        rec.end()
    run = read(log)
    assert run.segments.run_delay.tolist() == [3, 4]  # 1 before the first, 5 after the last
    assert run.steps.run_delay.tolist() == [-1]
    assert run.steps.cpu.tolist() == [7]
    assert "os" in run.records


def test_a_short_segment_is_not_worth_a_look(
    recorder: Make, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    looks: list[int] = []

    class Delays:
        at = 0

        def delta(self, now: int) -> int:
            self.at = now
            looks.append(now)
            return 1_000

        def close(self) -> None: ...

    cpu = itertools.count(500, 7)
    monkeypatch.setattr("stallbook.record.samplers.RunDelay", Delays)
    monkeypatch.setattr("stallbook.record.samplers._thread_time", cpu.__next__)
    with recorder(os_counters="segment") as rec:
        if rec.os_counters is None:
            pytest.skip("this kernel does not count run-queue delay")
        name = rec.name("decode")
        rec.begin(t=1_250_000)
        rec.enter(name, t=1_300_000)  # 50 us after the last look
        rec.enter(name, t=1_349_999)
        rec.enter(name, t=2_000_000)
        rec.end(t=2_000_001)
        rec.begin(t=2_000_011)  # at once: the 10 ns between count as CPU time
        rec.end(t=2_600_000)
    assert looks == [1_250_000, 2_000_000, 2_600_000]
    run = read(log)
    assert run.segments.run_delay.tolist() == [0, 1_000, 0]
    assert run.steps.cpu.tolist() == [7, 0]


def test_os_counters_of_a_step(recorder: Make, log: Path) -> None:
    with recorder(os_counters="step") as rec:
        if rec.os_counters is None:
            pytest.skip("this kernel does not count run-queue delay")
        rec.begin()
        rec.end()
    run = read(log)
    assert run.steps.run_delay[0] >= 0
    assert run.steps.cpu[0] >= 0


def test_timing_its_own_calls_changes_nothing_but_its_class(recorder: Make, log: Path) -> None:
    rec = recorder()
    timed, name = type(rec), rec.name("decode")
    a = rec.arrive("a")
    rec.begin()
    rec.join(a)
    rec.enter(name)
    assert type(rec) is timed
    rec.emit()
    rec.finish(a)
    rec.end()
    assert type(rec) is not timed
    assert isinstance(rec, Recorder)
    assert rec._cost.windows == 1
    assert rec.self_ns > 0
    steps = 0
    while rec._cost.windows < 3:
        rec.begin()
        rec.enter(name)
        rec.end()
        steps += 1
    assert 500 < steps < 2_000  # one in about 32 KiB
    rec.close()
    assert rec.self_ns > 0
    assert len(read(log).emissions.step) == 1


def test_what_is_lost_within_a_look_belongs_to_what_ends(
    recorder: Make, log: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    class Delays:
        at = 0

        def __init__(self) -> None:
            self.lost = 0

        def delta(self, now: int) -> int:
            self.at = now
            lost, self.lost = self.lost, 0
            return lost

        def close(self) -> None: ...

    class Interrupted(Delays):
        """Switched out for 3 ms after each counter was read; the look after that one sees it."""

        def delta(self, now: int) -> int:
            delay = super().delta(now)
            if not delay:
                clock.now += 3_000_000
                self.lost = 2_900_000
            return delay

    monkeypatch.setattr("stallbook.record.samplers.RunDelay", Delays)
    with recorder(os_counters="segment") as rec:
        if rec.os_counters is None:
            pytest.skip("this kernel does not count run-queue delay")
        name = rec.name("decode")
        start = rec.begin()
        rec._delays = Interrupted()  # type: ignore[assignment]
        rec.enter(name)
        clock.now += 1_000_000
        rec.leave()
        clock.now += 1_000_000
        rec.end()
    run = read(log)
    assert run.segments.t1[0] - run.segments.t0[0] >= 4_000_000  # its own and the wait, though its stamp came before
    assert run.segments.run_delay.tolist() == [2_900_000]
    assert run.steps.t1[0] == clock.now >= start + 8_000_000


def test_what_is_lost_where_the_time_slice_ends_belongs_to_the_step(
    recorder: Make, log: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The kernel looks at the slice when it is asked for the thread's CPU time, and may switch it out there."""

    class Delays:
        at, waited = 0, 0

        def delta(self, now: int) -> int:
            self.at = now
            waited, self.waited = self.waited, 0
            return waited

        def close(self) -> None: ...

    delays = Delays()

    def thread_time() -> int:
        clock.now += 3_000_000
        delays.waited += 2_900_000
        return 0

    monkeypatch.setattr("stallbook.record.samplers.RunDelay", lambda: delays)
    monkeypatch.setattr("stallbook.record.samplers._thread_time", thread_time)
    with recorder(os_counters="segment") as rec:
        if rec.os_counters is None:
            pytest.skip("this kernel does not count run-queue delay")
        name = rec.name("decode")
        clock.now += 1_000_000
        t0 = rec.begin()
        assert t0 == clock.now
        rec.enter(name)
        clock.now += 1_000_000
        rec.end()
    run = read(log)
    assert run.steps.t0[0] == t0
    assert run.steps.t1[0] == run.segments.t1[0] >= t0 + 4_000_000
    assert run.segments.run_delay.tolist() == [2_900_000]
