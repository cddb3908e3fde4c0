"""What the journal makes of its clocks, and the processes that want the engine's core."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stallbook as sb
from stallbook.inject import Task
from stallbook.inject.journal import Journal, Span, hindered
from stallbook.inject.machine import Competitor, UnavailableError, busy
from stallbook.inject.score import score
from stallbook.inject.truth import Truth, Window

MS = 1_000_000


def journal(marks: list[tuple[int, int]], stopped: tuple[int, ...] = ()) -> Journal:
    walls, cpus = iter([w * MS for w, _ in marks]), iter([c * MS for _, c in marks])
    made = Journal(lambda: next(walls), lambda: next(cpus))
    made.mark()
    if stopped:
        counter = iter([ms * MS for ms in stopped])
        made.watch(lambda: next(counter))
    for _ in marks[1:]:
        made.mark()
    return made


MARKS = [(0, 0), (10, 10), (20, 14), (30, 24), (40, 32)]
"""From 10 to 20 ms the thread lost 6 ms, from 30 to 40 it lost 2."""


def test_what_nothing_explains_is_foreign() -> None:
    truth = journal(MARKS).truth([], {})
    assert truth.foreign == (Window(10 * MS, 20 * MS, 6 * MS), Window(30 * MS, 40 * MS, 2 * MS))
    assert truth.faults == ()


def test_a_pass_that_took_far_more_than_those_around_it_was_hindered() -> None:
    passes = [(i * 10 * MS, i * 10 * MS + 5 * MS, 4 * MS + i * 1000, 24) for i in range(120)]
    passes[70] = (700 * MS, 709 * MS, 9 * MS, 24)
    passes[71] = (710 * MS, 719 * MS, 9 * MS, 48)  # the only one of its size
    (one,) = hindered(passes)
    assert (one.t0, one.t1) == (700 * MS, 709 * MS)
    assert one.ns == pytest.approx(5 * MS, rel=0.05)


def test_passes_of_a_slow_stretch_are_held_against_the_whole_run() -> None:
    passes = [(i * 10 * MS, i * 10 * MS + 9 * MS, (8 if 100 <= i < 200 else 4) * MS, 24) for i in range(600)]
    found = hindered(passes)
    assert [w.t0 // (10 * MS) for w in found] == list(range(100, 200))
    assert {w.ns for w in found} == {4 * MS}


def test_a_pass_is_hindered_from_half_as_much_again() -> None:
    passes = [(i * 10 * MS, i * 10 * MS + 9 * MS, 4 * MS, 24) for i in range(120)]
    passes[30], passes[60] = (
        (i * 10 * MS, i * 10 * MS + 9 * MS, cpu, 24) for i, cpu in ((30, 6 * MS), (60, 6_100_000))
    )
    assert hindered(passes) == [Window(600 * MS, 609 * MS, 2_100_000)]


@pytest.mark.parametrize(("lost", "seen"), [(50_000, False), (50_001, True)])
def test_what_an_interrupt_takes_is_no_loss(lost: int, seen: bool) -> None:
    walls, cpus = iter([0, 10 * MS]), iter([0, 10 * MS - lost])
    made = Journal(lambda: next(walls), lambda: next(cpus))
    made.mark()
    made.mark()
    assert made.truth([], {}).foreign == ((Window(0, 10 * MS, lost),) if seen else ())


@pytest.mark.parametrize(("had", "owns"), [(4, False), (4.5, True)])
def test_a_competitor_owns_a_loss_from_three_quarters_on(had: float, owns: bool) -> None:
    made = journal(MARKS[:3])
    made.open("competitor", "os").competed.append((5 * MS, 25 * MS))
    truth = made.truth([(12 * MS, int((12 + had) * MS))], {})
    assert (len(truth.faults), len(truth.foreign)) == (owns, not owns)


def windows(
    spans: list[Span], slices: list[Span], stopped: tuple[int, ...] = ()
) -> tuple[tuple[Window, ...], tuple[Window, ...]]:
    made = journal(MARKS, stopped)
    entry = made.open("quota" if stopped else "competitor", "os")
    (entry.throttled if stopped else entry.competed).extend((a * MS, b * MS) for a, b in spans)
    truth = made.truth([(a * MS, b * MS) for a, b in slices], {})
    return tuple(w for fault in truth.faults for w in fault.windows), truth.foreign


def test_a_quota_owns_what_its_group_s_counter_confirms() -> None:
    planted, foreign = windows([(5, 35)], [], stopped=(50, 50, 55, 55, 56))
    assert planted == (Window(10 * MS, 20 * MS, 6 * MS),)
    assert foreign == (Window(30 * MS, 40 * MS, 2 * MS),)


def test_a_competitor_owns_what_its_own_clock_confirms() -> None:
    planted, foreign = windows([(5, 40)], [(8, 9), (12, 15), (16, 18), (36, 37)])
    assert planted == (Window(10 * MS, 20 * MS, 6 * MS),)
    assert foreign == (Window(30 * MS, 40 * MS, 2 * MS),)


def test_busy_says_when_it_ran() -> None:
    times: Iterator[int] = iter([100_000, 105_000, 110_000, 200_000, 205_000, 400_000])
    assert busy(150_000, lambda: next(times), 30_000) == [(70_000, 110_000), (200_000, 205_000), (400_000, 400_000)]


@pytest.mark.skipif(not hasattr(__import__("os"), "sched_setaffinity"), reason="no CPU binding here")
def test_the_competitor_runs_when_told_and_tells() -> None:
    import os

    rival = Competitor(max(os.sched_getaffinity(0)))
    rival.run(2 * MS)
    rival.run(1 * MS)
    slices = rival.close()
    assert slices == sorted(slices)
    assert sum(b - a for a, b in slices) > 0
    assert slices[-1][1] - slices[0][0] >= 3 * MS


def test_a_competitor_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError):
        Competitor(0)


def test_a_real_run(tmp_path: Path) -> None:
    kinds = ("scheduler", "collection", "hold", "left-out", "competitor", "quota")
    log, truth = tmp_path / "x.stall", tmp_path / "truth.json"
    command = [sys.executable, "-m", "stallbook.inject", "--task", Task(1, 1, kinds).to_json()]
    done = subprocess.run(
        [*command, "--log", str(log), "--truth", str(truth)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout.splitlines()[-1])["done"]
    found = Truth.load(truth)
    assert {fault.kind for fault in found.faults} | set(found.unavailable) | set(found.failed) == set(kinds)
    assert len(found.faults) == told["planted"]
    judged = score(found, sb.partition(sb.open(log)))
    assert judged.reconciled
    assert judged.causes["other:kv"].false_negative == 0
