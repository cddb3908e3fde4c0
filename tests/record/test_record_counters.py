"""The OS counters: what the kernel says of a thread, asked as seldom as possible."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from stallbook.record.counters import PoolDelay, RunDelay, available

pytestmark = pytest.mark.skipif(not available(), reason="this kernel does not count run-queue delay")


def own_delay() -> int:
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def test_the_deltas_add_up_to_what_the_kernel_counted() -> None:
    before = own_delay()
    delays = RunDelay()
    start = own_delay()
    total = 0
    for _ in range(200):
        total += delays.delta(0)
        time.sleep(0.0001)
    total += delays.delta(0)
    assert 0 <= total <= own_delay() - before
    assert total >= own_delay() - start - 5_000_000  # what came after the last look
    delays.close()


def test_a_thread_that_was_not_switched_out_is_not_asked_about() -> None:
    delays = RunDelay()
    asked = 0
    pread = delays._pread

    def counted(*args: object) -> object:
        nonlocal asked
        asked += 1
        return pread(*args)

    delays._pread = counted
    delays._usage_of = (lambda *_: 0, ())  # the count of switches stands still
    for now in range(10):
        assert delays.delta(now) == 0
    assert (asked, delays.at) == (0, 9)
    delays._switched -= 1
    delays.delta(10)
    assert asked == 1
    delays.close()


def test_a_switch_is_seen() -> None:
    delays = RunDelay()
    before = delays._switched
    time.sleep(0.001)
    delays.delta(0)
    assert delays._switched > before
    delays.close()
    assert delays.delta(0) == 0


def pool(waits: list[tuple[int, ...]], runnable: int = 3, cpus: int = 2) -> PoolDelay:
    """A pool whose threads have waited for so long since the reading before: the caller first."""
    files = [os.open("/proc/loadavg", os.O_RDONLY) for _ in waits[0][1:]]
    readings = iter(waits)
    ever = [0] * len(waits[0])

    class Told(PoolDelay):
        def _runnable(self) -> int:
            return runnable

    delays = Told()
    delays._cpus = cpus
    delays._others = {-1 - i: (delays._arguments(fd), 0) for i, fd in enumerate(files)}
    fds = {fd: i + 1 for i, fd in enumerate(files)}
    delays._usage_of = (lambda *_: next_reading(), ())

    def next_reading() -> None:
        for i, wait in enumerate(next(readings)):
            ever[i] += wait
        delays._switched -= 1  # whatever the count of switches is, it is another

    def pread(fd: object, buffer: object, *_: object) -> int:
        at = fds.get(getattr(fd, "value", fd), 0)  # type: ignore[arg-type]
        delays._buffer.value = b"0 %d 0" % ever[at]
        return 1

    delays._pread = pread
    delays._last = 0
    return delays


@pytest.mark.parametrize(
    ("waits", "runnable", "cpus", "lost"),
    [
        ((4_000_000, 0), 3, 2, 4_000_000),  # the caller alone
        ((0, 4_000_000), 3, 2, 4_000_000),  # a thread of the pool alone: the caller is at the barrier
        ((4_000_000, 3_000_000), 3, 2, 7_000_000),  # one task too many: they waited in turn
        ((4_000_000, 3_000_000), 4, 2, 4_000_000),  # two too many: at once, for all that is known
        ((4_000_000, 3_000_000), 3, 0, 4_000_000),  # not all CPUs are its to use
        ((1_000_000,) * 9, 11, 8, 3_000_000),  # nine threads, of which three can wait at once
        ((9_000_000, 9_000_000), 3, 2, 10_000_000),  # no more than what passed
        ((0, 30_000_000), 3, 2, 10_000_000),  # it waited before anybody needed it
    ],
)
def test_a_pool_loses_the_time_in_which_any_thread_waited(
    waits: tuple[int, ...], runnable: int, cpus: int, lost: int
) -> None:  # fmt: skip
    delays = pool([waits], runnable, cpus)
    delays._looked = 20_000_000
    assert delays.delta(30_000_000) == lost
    delays.close()


def test_native_threads_are_found_and_python_threads_are_not() -> None:
    code = textwrap.dedent(
        """
        import threading, time
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
        from stallbook.record.counters import PoolDelay
        none = len(PoolDelay()._others)
        import numpy as np
        a = np.ones((256, 256)); a @ a
        print(none, len(PoolDelay()._others))
        """
    )
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    none, pool = map(int, done.stdout.split())
    assert none == 0
    assert pool in (0, 1)  # 1 where NumPy comes with OpenBLAS


def test_looks_inside_a_segment_add_up_at_its_end() -> None:
    delays = pool([(0, 4_000_000), (4_100_000, 0), (0, 9_000_000), (0, 300_000), (0, 0)], runnable=9)
    at = delays.at
    delays._looked = 0
    delays.look(5_000_000)
    delays.look(5_500_000)  # too soon to ask
    delays.look(10_000_000)
    delays.look(12_000_000)  # waited 9 ms, the most of it before anybody needed it
    assert delays.at == at
    assert delays.delta(13_000_000) == 4_000_000 + 4_100_000 + 2_000_000 + 300_000
    assert delays.delta(14_000_000) == 0
    assert delays.at == 14_000_000
    delays.close()


def test_one_thread_needs_no_looks_between() -> None:
    delays = RunDelay()
    at = delays.at
    delays.look(10**9)
    assert delays.at == at
    delays.close()
