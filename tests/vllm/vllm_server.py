"""A real vLLM server on the CPU with the tiny model: start, watch, ask, stop, kill. Loopback only.

`STALLBOOK_VLLM_RUNNER` may hold words to put before the command, such as `nice` or `taskset`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import engine_server
from engine_server import NotServingError, command_line, count

__all__ = [
    "ENVIRONMENT", "LARGE_POOL", "LAYOUTS", "SMALL_POOL", "THREE", "TWO", "Layout", "NotServingError", "Server",
    "serving",
]  # fmt: skip

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


class Server(engine_server.Server):
    """A vLLM server."""

    def __init__(
        self, home: Path, output: Path, layout: Layout, log: Path | None, *, blocks: int = SMALL_POOL,
        environment: Mapping[str, str] | None = None, flags: tuple[str, ...] = (), model: str = "tiny",
    ) -> None:  # fmt: skip
        super().__init__(output, log, ENVIRONMENT | layout.environment | (environment or {}))
        self.layout = layout
        words = [*shlex.split(os.environ.get("STALLBOOK_VLLM_RUNNER", "")), str(Path(sys.executable).parent / "vllm")]
        words += ["serve", str(home / model), "--port", str(self.port), "--num-gpu-blocks-override", str(blocks)]
        self.start([*words, *FLAGS, *layout.flags, *flags])

    def counters(self) -> dict[str, int]:
        """vLLM's own counts, by name, added up over engines."""
        return count(self.metrics(), *COUNTERS)

    def role_of(self, pid: int) -> str:
        """`api`, `engine`, `worker`, `other`."""
        told = command_line(pid)
        for word, role in (("EngineCore", "engine"), ("Worker", "worker"), ("ApiServer", "api"), ("APIServer", "api")):
            if word in told:
                return role
        return "api" if pid == self.process.pid else "other"


@contextmanager
def serving(*words: object, **named: object) -> Iterator[Server]:
    """A healthy server that is gone afterwards, whatever happens."""
    server = Server(*words, **named)  # type: ignore[arg-type]
    try:
        server.wait()
        yield server
    finally:
        server.stop() if server.process.poll() is None else server.reap()
