"""A real vLLM server on the CPU with the tiny model: start, watch, ask, stop, kill. Loopback only.

`STALLBOOK_VLLM_RUNNER` may hold words to put before the command, such as `nice` or `taskset`.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

READY_S = 240
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0",
}  # fmt: skip
FLAGS = (
    "--served-model-name", "tiny", "--dtype", "bfloat16", "--host", "127.0.0.1", "--enforce-eager",
    "--max-model-len", "4096", "--max-num-batched-tokens", "512", "--max-num-seqs", "32", "--block-size", "32",
    "--no-enable-prefix-caching", "--generation-config", "vllm", "--disable-uvicorn-access-log",
)  # fmt: skip
COUNTERS = ("vllm:num_preemptions_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_total")
SMALL_POOL, LARGE_POOL = 200, 3000
"""KV blocks of 32 tokens: 200 force preemptions under the tests' load, 3,000 never run out."""


@dataclass(frozen=True)
class Layout:
    """How vLLM spreads over processes."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


THREE = Layout("three", flags=("--distributed-executor-backend", "mp"))
"""API server, engine core, worker."""
TWO = Layout("two", {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"})
"""API server; engine core with the worker inside: nearest to one GPU."""
LAYOUTS = (THREE, TWO)


class NotServingError(RuntimeError):
    """The server ended, or did not begin; holds the end of what it printed."""


class Server:
    """A server in a process group of its own, but in this session: there the kernel shares a core between its tasks
    and a competitor of the tests task by task. `log`: where it records; None: without the recorder."""

    def __init__(
        self, home: Path, output: Path, layout: Layout, log: Path | None, *, blocks: int = SMALL_POOL,
        environment: Mapping[str, str] | None = None, flags: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.output, self.log, self.layout = output, log, layout
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = [*shlex.split(os.environ.get("STALLBOOK_VLLM_RUNNER", "")), str(Path(sys.executable).parent / "vllm")]
        words += ["serve", str(home / "tiny"), "--port", str(port), "--num-gpu-blocks-override", str(blocks)]
        given = {key: value for key, value in os.environ.items() if not key.startswith("STALLBOOK")}
        given |= ENVIRONMENT | layout.environment | (environment or {}) | ({"STALLBOOK": str(log)} if log else {})
        with output.open("wb") as printed:
            self.process = subprocess.Popen(
                [*words, *FLAGS, *layout.flags, *flags], env=given, stdin=subprocess.DEVNULL, stdout=printed,
                stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip

    def wait(self, seconds: float = READY_S) -> None:
        """Until it is healthy."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NotServingError(f"exit code {self.process.returncode}\n{self.tail()}")
            with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(f"{self.url}/health", timeout=2):
                return
            time.sleep(0.25)
        raise NotServingError(f"not healthy after {seconds} s\n{self.tail()}")

    def tail(self, lines: int = 30) -> str:
        """The end of what it printed."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def counters(self) -> dict[str, int]:
        """vLLM's own counts, by name, added up over engines."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return read_counters(text)

    def processes(self) -> dict[str, list[int]]:
        """Its processes by role: `api`, `engine`, `worker`, `other`."""
        roles: dict[str, list[int]] = {}
        for pid in _group(self.process.pid):
            roles.setdefault(_role(pid, self.process.pid), []).append(pid)
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


@contextmanager
def serving(*words: object, **named: object) -> Iterator[Server]:
    """A healthy server that is gone afterwards, whatever happens."""
    server = Server(*words, **named)  # type: ignore[arg-type]
    try:
        server.wait()
        yield server
    finally:
        server.stop() if server.process.poll() is None else server.reap()


def read_counters(text: str) -> dict[str, int]:
    """`COUNTERS` from a page of metrics."""
    found = dict.fromkeys(COUNTERS, 0)
    for line in text.splitlines():
        if (name := line.partition("{")[0]) in found:
            found[name] += int(float(line.rpartition(" ")[2]))
    return found


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


def _role(pid: int, leader: int) -> str:
    with suppress(OSError):
        told = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        for word, role in (("EngineCore", "engine"), ("Worker", "worker"), ("ApiServer", "api"), ("APIServer", "api")):
            if word in told:
                return role
    return "api" if pid == leader else "other"


def _alive(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
