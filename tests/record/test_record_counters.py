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


def test_a_pool_is_as_late_as_its_latest_thread() -> None:
    """Two native threads, one pinned beside a competitor: the step's delay is the longest, not the sum."""
    delays = PoolDelay()
    own = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    read = delays._arguments(own)
    delays._others = {-1: (read, 0), -2: (read, 0)}  # stand-ins that have waited as long as this thread ever did
    ever = own_delay()
    assert ever <= delays.delta(0) <= ever + 10**9
    delays._others.clear()
    os.close(own)
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


def test_threads_that_wait_in_turn_are_told_apart_by_looks_between() -> None:
    """Each wait counts once: of the threads that waited between two looks the longest, at most the time between."""
    waits = iter([4_000_000, 4_100_000, 9_000_000, 300_000])  # the longest since the last reading

    class Told(PoolDelay):
        def _longest(self, now: int) -> int:
            self._looked = now
            return next(waits)

    delays = Told()
    delays._looked = 0
    delays.look(5_000_000)
    delays.look(5_500_000)  # too soon to ask
    delays.look(10_000_000)
    delays.look(12_000_000)  # waited 9 ms, the most of it before anybody needed it
    assert delays.delta(13_000_000) == 4_000_000 + 4_100_000 + 2_000_000 + 300_000
    delays.close()


def test_one_thread_needs_no_looks_between() -> None:
    delays = RunDelay()
    at = delays.at
    delays.look(10**9)
    assert delays.at == at
    delays.close()
