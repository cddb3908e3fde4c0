"""A real engine's server on the CPU: start, watch, stop, kill. Loopback only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

READY_S = 240


class NotServingError(RuntimeError):
    """The server ended, or did not begin; holds the end of what it printed."""


class Server:
    """A server in a process group of its own, but in this session: there the kernel shares a core between its tasks
    and a competitor of the tests task by task. `log`: where it records; None: without the recorder."""

    health = "/health"

    def __init__(self, output: Path, log: Path | None, environment: Mapping[str, str]) -> None:
        self.output, self.log = output, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        given = {key: value for key, value in os.environ.items() if not key.startswith("STALLBOOK")}
        self.environment = given | dict(environment) | ({"STALLBOOK": str(log)} if log else {})

    def start(self, words: Sequence[str]) -> None:
        """Run the server's command."""
        with self.output.open("wb") as printed:
            self.process = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
                process_group=0,
            )  # fmt: skip

    def wait(self, seconds: float = READY_S) -> None:
        """Until it is healthy."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NotServingError(f"exit code {self.process.returncode}\n{self.tail()}")
            with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(self.url + self.health, timeout=2):
                return
            time.sleep(0.25)
        raise NotServingError(f"not healthy after {seconds} s\n{self.tail()}")

    def tail(self, lines: int = 30) -> str:
        """The end of what it printed."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def metrics(self) -> str:
        """The page of the engine's own counters."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def role_of(self, pid: int) -> str:
        """What one of its processes is."""
        return "other"

    def processes(self) -> dict[str, list[int]]:
        """Its processes by role: as `role_of` tells them."""
        roles: dict[str, list[int]] = {}
        for pid in _group(self.process.pid):
            roles.setdefault(self.role_of(pid), []).append(pid)
        return roles

    def pid(self, role: str) -> int:
        """The one process of a role."""
        (pid,) = self.processes()[role]
        return pid

    def stop(self, number: int = signal.SIGTERM, seconds: float = 40) -> int:
        """Tell it to end as its user would; make sure that nothing of it is left. Its exit code."""
        pids = _group(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -1
        self.reap(pids, 10 if code != -1 else 0)
        return code

    def reap(self, pids: list[int] | None = None, patience: float = 0) -> None:
        """End whatever of it is left."""
        pids = pids or _group(self.process.pid)
        end = time.monotonic() + patience
        while time.monotonic() < end and any(_alive(pid) for pid in pids):
            time.sleep(0.1)
        for pid in {*pids, *_group(self.process.pid)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def count(page: str, *names: str) -> dict[str, int]:
    """Counters of a page of metrics, each added up over its labels."""
    found = dict.fromkeys(names, 0)
    for line in page.splitlines():
        if (name := line.partition("{")[0].partition(" ")[0]) in found:
            found[name] += int(float(line.rpartition(" ")[2]))
    return found


def command_line(pid: int) -> str:
    """Its words; empty where there is no such process any more."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _group(leader: int) -> list[int]:
    """The live processes of a group."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == leader and fields[0] != "Z":
                    found.append(int(folder.name))
    return sorted(found)


def _alive(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
