"""What the kernel counts of a thread that was ready to run while another ran: its run-queue delay.

The delay stands in `/proc`, and reading that is a long system call. It grows only when the thread is switched out, and
asking how often it was (`getrusage`) is a short one: so the delay is read only if the thread was switched out since.

Called through `ctypes.PyDLL`, which keeps the GIL: `os.pread` releases it, and in an engine with more than one thread
that hands the interpreter away in the middle of a step (measured: 0.8 ms a step). Arguments are made beforehand, which
halves the cost of a call.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from pathlib import Path
from typing import Any, Final

__all__ = ["SHORT_NS", "PoolDelay", "RunDelay", "available"]

SHORT_NS: Final = 500_000
"""Not worth a look: a thread that waited longer than this was away for longer. A look is two or three system calls, and
behind a forward pass, which leaves no cache warm, each takes tens of microseconds.
"""
LOOK_NS: Final = 1_000_000
"""The same inside a segment whose threads wait for each other: a scheduler's time slice is some 3 ms."""

_OWN = "/proc/thread-self/schedstat"
_TASKS = "/proc/self/task"
_LOAD = "/proc/loadavg"
_SIZE = 96
_RESCAN = 4096
_RUSAGE_THREAD: Final = 1
_RUSAGE_LONGS: Final = 18
_VOLUNTARY, _INVOLUNTARY = 16, 17
"""Where `struct rusage` of Linux holds the context switches: after two times of two longs, and twelve longs."""


def available() -> bool:
    """Does this kernel say how long a thread waited in a run queue?"""
    try:
        return len(Path(_OWN).read_bytes().split()) == 3 and hasattr(ctypes, "PyDLL")
    except OSError:
        return False


class RunDelay:
    """Run-queue delay of the thread that makes it. `delta()` is the delay since the last call, in ns."""

    __slots__ = ("_buffer", "_fd", "_last", "_library", "_pread", "_read", "_switched", "_usage", "_usage_of", "at")

    def __init__(self) -> None:
        self._library = ctypes.PyDLL(None)
        self._pread, usage = self._library["pread"], (ctypes.c_long * _RUSAGE_LONGS)()
        self._buffer = ctypes.create_string_buffer(_SIZE)
        self._fd = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._read = self._arguments(self._fd)
        self._usage_of = self._library["getrusage"], (ctypes.c_int(_RUSAGE_THREAD), usage)
        self._usage = memoryview(usage).cast("B").cast("l")
        self._last = self._switched = 0
        self.at = 0
        """When `delta` was last called."""
        self.delta(0)

    def _arguments(self, fd: int) -> tuple[Any, ...]:
        return ctypes.c_int(fd), self._buffer, ctypes.c_size_t(_SIZE), ctypes.c_ssize_t(0)

    def delta(self, now: int) -> int:
        """Ns that the thread waited for a CPU since the last call."""
        self.at = now
        call, arguments = self._usage_of
        call(*arguments)
        usage = self._usage
        switched = usage[_VOLUNTARY] + usage[_INVOLUNTARY]
        if switched == self._switched:
            return 0
        self._switched = switched
        if self._pread(*self._read) <= 0:
            return 0
        total = int(self._buffer.value.split()[1])
        delta = total - self._last
        self._last = total
        return delta

    def look(self, now: int) -> None:
        """Between two calls of `delta`. Of one thread the kernel's own sum is exact: nothing to do."""

    def close(self) -> None:
        """Close the file; a later `delta` is 0."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._read = self._arguments(-1)


class PoolDelay(RunDelay):
    """How long any thread of the step waited: the caller, or a native one (a BLAS or OpenMP pool's).

    They wait for each other at barriers, so the step loses the time in which at least one of them had no CPU: not the
    sum over threads, which counts an instant twice where two wait at once, and not the longest, which falls short
    where they wait in turn. The kernel tells each thread's sum alone. But no more tasks can wait at once than are
    runnable beyond the CPUs: so this time is at least the sum over that many, at least the longest, and at most what
    passed. `look`, called inside a long segment, makes it finer.

    Threads that Python started are left out: the step does not wait for those. The set is looked up again now and then.
    """

    __slots__ = ("_calls", "_cpus", "_kept", "_load", "_looked", "_others")

    def __init__(self) -> None:
        self._others: dict[int, tuple[tuple[Any, ...], int]] = {}  # thread: (how to read it, last)
        self._calls = self._kept = self._looked = 0
        whole = os.cpu_count() or 1
        self._cpus = whole if len(os.sched_getaffinity(0)) == whole else 0
        """0: this process may not use all, and tasks can wait though a CPU is free."""
        super().__init__()
        self._load = self._arguments(os.open(_LOAD, os.O_RDONLY | os.O_CLOEXEC))
        self._rescan()

    def look(self, now: int) -> None:
        """Not worth it more often than each `LOOK_NS`."""
        if now - self._looked >= LOOK_NS:
            at = self.at
            self._kept += self._waited(now)
            self.at = at

    def delta(self, now: int) -> int:
        """Ns in which any of the threads waited for a CPU since the last call."""
        kept = self._kept
        self._kept = 0
        return kept + self._waited(now)

    def _waited(self, now: int) -> int:
        """Since the last reading."""
        since = now - self._looked
        self._looked = now
        total = longest = super().delta(now)
        for thread, (read, last) in self._others.items():
            if self._pread(*read) > 0:
                ever = int(self._buffer.value.split()[1])
                if ever != last:
                    self._others[thread] = (read, ever)
                    total += ever - last
                    longest = max(longest, ever - last)
        if total > longest and self._cpus:
            longest = max(longest, total // max(self._runnable() - self._cpus, 1))
        self._calls += 1
        if self._calls % _RESCAN == 0:
            self._rescan()
        return min(longest, since)

    def _runnable(self) -> int:
        """Tasks of the machine that run or could."""
        if self._pread(*self._load) <= 0:
            return 1 << 30
        return int(self._buffer.value.split()[3].split(b"/")[0])

    def _rescan(self) -> None:
        python = {t.native_id for t in threading.enumerate()} | {threading.get_native_id()}
        alive = {int(p.name) for p in Path(_TASKS).iterdir()} - python
        for gone in self._others.keys() - alive:
            os.close(self._others.pop(gone)[0][0].value)
        for thread in alive - self._others.keys():
            with contextlib.suppress(OSError):
                fd = os.open(f"{_TASKS}/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                self._others[thread] = (self._arguments(fd), int(os.pread(fd, _SIZE, 0).split()[1]))

    def close(self) -> None:
        """Close the files."""
        super().close()
        for read in (self._load, *(read for read, _ in self._others.values())):
            with contextlib.suppress(OSError):
                os.close(read[0].value)
        self._load = self._arguments(-1)
        self._others.clear()
