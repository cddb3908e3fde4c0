"""Faults that come from outside the engine: a process that wants its core, and a quota on its CPU time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from stallbook.inject.journal import Span

__all__ = ["Competitor", "Quota", "UnavailableError", "busy", "pin", "rival"]

PERIOD_US: Final = 20_000
OPEN_US: Final = 100 * PERIOD_US
"""A quota that never binds: switching one off altogether patches the kernel's code, and that takes time."""
JUMP_NS: Final = 20_000
"""A loop that reads the clock and finds it further on than this did not run in between."""


class UnavailableError(Exception):
    """This machine does not allow a kind of fault; says why."""


def pin() -> int:
    """Bind this process to one CPU, the last it may use; which one."""
    if not hasattr(os, "sched_setaffinity"):
        raise UnavailableError("this system binds no process to a CPU")
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    return cpu


def busy(length_ns: int, now: Callable[[], int], awake_ns: int = 0) -> list[Span]:
    """Be busy for so long; when, by the clock, this was really running. `awake_ns`: what it has run for already."""
    slices: list[Span] = []
    last = now()
    start = last - awake_ns
    end = last + length_ns
    while last < end:
        t = now()
        if t - last > JUMP_NS:
            slices.append((start, last))
            start = t
        last = t
    return [*slices, (start, last)]


def rival(cpu: int, now: Callable[[], int]) -> int:
    """The competitor's own process: lengths in on stdin, a line each; all slices out when it ends."""
    os.sched_setaffinity(0, {cpu})
    print("+", flush=True)
    slices: list[Span] = []
    slept = time.thread_time_ns()
    while line := sys.stdin.readline():
        slices += busy(int(line), now, time.thread_time_ns() - slept)
        slept = time.thread_time_ns()
    print(json.dumps(slices), flush=True)
    return 0


class Competitor:
    """A process on the engine's core that sleeps until it is told to be busy."""

    def __init__(self, cpu: int) -> None:
        command = [sys.executable, "-m", "stallbook.inject", "--rival", str(cpu)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        if self._child.stdout.readline().strip() != "+":
            self._child.stdout.close()
            with suppress(OSError):
                self._child.stdin.close()
            self._child.kill()
            self._child.wait()
            raise UnavailableError("the competitor did not start")
        self.pid = self._child.pid

    def run(self, length_ns: int) -> None:
        """Be busy from now on, for so long."""
        assert self._child.stdin is not None
        os.write(self._child.stdin.fileno(), f"{length_ns}\n".encode())

    def close(self) -> list[Span]:
        """End it; when it had the core."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        stdout: IO[str] = self._child.stdout
        self._child.stdin.close()
        told = stdout.read()
        stdout.close()
        self._child.wait()
        return [(a, b) for a, b in json.loads(told or "[]")]


def _cpu_group() -> tuple[Path, bool]:
    """This process's own CPU control group, and whether it is of version 2."""
    mounts = [line.split()[1:4] for line in Path("/proc/self/mounts").read_text().splitlines()]
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for place, kind, options in mounts:
        for _, names, path in groups:
            v1 = kind == "cgroup" and "cpu" in options.split(",") and "cpu" in names.split(",")
            if v1 or (kind == "cgroup2" and not names):
                folder = Path(place) / path.lstrip("/")
                if v1 or "cpu" in (folder / "cgroup.subtree_control").read_text().split():
                    return folder, not v1
    raise UnavailableError("no control group for CPU time that could be divided")


class Quota:
    """A control group for this process, whose CPU time can be limited while it runs."""

    def __init__(self) -> None:
        self._made: list[Path] = []
        self._fd = self._stat = -1
        try:
            self._home, self._v2 = _cpu_group()
            folder = self._group("engine")
            if not self._v2:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            self._fd = os.open(folder / ("cpu.max" if self._v2 else "cpu.cfs_quota_us"), os.O_WRONLY | os.O_CLOEXEC)
            self._stat = os.open(folder / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC)
            self._write(OPEN_US)
            (folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            self.close()
            raise UnavailableError(f"control groups: {(error.strerror or str(error)).lower()}") from None

    def _group(self, name: str) -> Path:
        folder = self._home / f"stallbook-{os.getpid()}-{name}"
        folder.mkdir()
        self._made.append(folder)
        return folder

    def beside(self, pid: int) -> None:
        """Give another process a group of the same weight: groups share a core before their processes do."""
        with suppress(OSError):
            (self._group("rival") / "cgroup.procs").write_text(str(pid))

    def stopped(self) -> int:
        """For how long the group was kept from its core, in all, ns."""
        told = dict(line.split() for line in os.pread(self._stat, 4096, 0).decode().splitlines())
        return int(told["throttled_usec"]) * 1000 if self._v2 else int(told["throttled_time"])

    def limit(self, fraction: float) -> None:
        """Only this part of each period."""
        self._write(int(PERIOD_US * fraction))

    def lift(self) -> None:
        """All of it again."""
        self._write(OPEN_US)

    def _write(self, us: int) -> None:
        os.pwrite(self._fd, f"{us} {PERIOD_US}".encode() if self._v2 else str(us).encode(), 0)

    def close(self) -> None:
        """Leave the groups and remove them."""
        for fd in (self._fd, self._stat):
            if fd >= 0:
                os.close(fd)
        self._fd = self._stat = -1
        for folder in self._made:
            with suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    (self._home / "cgroup.procs").write_text(pid)
            with suppress(OSError):
                folder.rmdir()
        self._made.clear()
