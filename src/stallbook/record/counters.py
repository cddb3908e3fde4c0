"""What the kernel counts for a thread: CPU time, and the time it was ready to run but another ran (run-queue delay).

Read with `pread` through `ctypes.PyDLL`, which keeps the GIL: `os.pread` releases it, and in an engine with more than
one thread that hands the interpreter away in the middle of a step (measured: 0.8 ms a step).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from pathlib import Path

__all__ = ["PoolDelay", "RunDelay", "available"]

_OWN = "/proc/thread-self/schedstat"
_TASKS = "/proc/self/task"
_SIZE = 96
_RESCAN = 4096
_TRUST_NS = 5000
"""Waits shorter than this, summed, are not looked up at once; they show in a later segment."""
_wall_time, _thread_time = time.perf_counter_ns, time.thread_time_ns


def available() -> bool:
    """Does this kernel say how long a thread waited in a run queue?"""
    try:
        return len(Path(_OWN).read_bytes().split()) == 3 and hasattr(ctypes, "PyDLL")
    except OSError:
        return False


class RunDelay:
    """Run-queue delay of the thread that makes it. `delta()` is the delay since the last call, in ns."""

    __slots__ = ("_address", "_buffer", "_fd", "_idle", "_last", "_pread", "_wall", "cpu")

    def __init__(self) -> None:
        self._pread = ctypes.PyDLL(None).pread
        self._pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ssize_t)
        self._pread.restype = ctypes.c_ssize_t
        self._buffer = ctypes.create_string_buffer(_SIZE)
        self._address = ctypes.addressof(self._buffer)
        self._fd = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._last, self._wall, self._idle = 0, _wall_time(), _TRUST_NS
        self.cpu = _thread_time()
        """The thread's CPU time at the last call."""
        self.delta()

    def delta(self) -> int:
        """Ns that the thread waited for a CPU since the last call.

        A thread that waited did not compute: where wall and CPU time agree, the kernel need not be asked for more.
        """
        wall, cpu = _wall_time(), _thread_time()
        self._idle += wall - self._wall - cpu + self.cpu
        self._wall, self.cpu = wall, cpu
        if self._idle < _TRUST_NS:
            return 0
        self._idle = 0
        if self._pread(self._fd, self._address, _SIZE, 0) <= 0:
            return 0
        total = int(self._buffer.value.split()[1])
        delta = total - self._last
        self._last = total
        return delta

    def close(self) -> None:
        """Close the file; a later `delta` is 0."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class PoolDelay(RunDelay):
    """The longest delay of any thread of the step: the caller's, or a native one (a BLAS or OpenMP pool's).

    The caller waits for its pool at a barrier, so the step loses the longest delay, not the sum. Threads that Python
    started are left out: the step does not wait for those. The set is looked up again now and then.
    """

    __slots__ = ("_calls", "_others")

    def __init__(self) -> None:
        self._others: dict[int, tuple[int, int]] = {}  # thread: (fd, last)
        self._calls = 0
        super().__init__()
        self._rescan()

    def delta(self) -> int:
        """Ns that the slowest of the threads waited for a CPU since the last call."""
        longest = super().delta()
        for thread, (fd, last) in self._others.items():
            if self._pread(fd, self._address, _SIZE, 0) > 0:
                total = int(self._buffer.value.split()[1])
                if total != last:
                    self._others[thread] = (fd, total)
                    longest = max(longest, total - last)
        self._calls += 1
        if self._calls % _RESCAN == 0:
            self._rescan()
        return longest

    def _rescan(self) -> None:
        python = {t.native_id for t in threading.enumerate()} | {threading.get_native_id()}
        alive = {int(p.name) for p in Path(_TASKS).iterdir()} - python
        for gone in self._others.keys() - alive:
            os.close(self._others.pop(gone)[0])
        for thread in alive - self._others.keys():
            with contextlib.suppress(OSError):
                fd = os.open(f"{_TASKS}/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                self._others[thread] = (fd, int(os.pread(fd, _SIZE, 0).split()[1]))

    def close(self) -> None:
        """Close the files."""
        super().close()
        for fd, _ in self._others.values():
            os.close(fd)
        self._others.clear()
