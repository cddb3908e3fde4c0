"""A real SGLang server on the CPU with the tiny model, in each of its loops; and how it is asked."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp

import engine_load
import engine_server
from engine_load import Answer, Ask
from engine_server import NotServingError, command_line, count

__all__ = [
    "LARGE_POOL",
    "LOOPS",
    "MIXED",
    "NORMAL",
    "OVERLAP",
    "Layout",
    "NotServingError",
    "Server",
    "load",
    "serving",
]


def other_models() -> str:
    """All models but the one that is served: SGLang imports each of two hundred as it starts, unless told not to."""
    spec = find_spec("sglang")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "srt" / "models"
    return ",".join(sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "llama")))


ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1",
    "DO_NOT_TRACK": "1", "SGLANG_DISABLED_MODEL_ARCHS": other_models(),
}  # fmt: skip
FLAGS = (
    "--served-model-name", "tiny", "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1",
    "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--context-length", "4096",
    "--chunked-prefill-size", "256", "--max-running-requests", "16", "--skip-server-warmup", "--enable-metrics",
    "--log-level-http", "warning", "--sleep-on-idle", "--schedule-conservativeness", "0.1",
)  # fmt: skip
SMALL_POOL, LARGE_POOL = 2560, 16384
"""Tokens of KV: the small pool runs full under the tests' load, the large one never does. A request that fits into none
waits for good, and all others behind it."""
RETRACTING = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "20"}
"""Each twentieth decode SGLang retracts a request, as if its KV pool were full."""
COUNTERS = ("sglang:num_retracted_requests_total", "sglang:generation_tokens_total", "sglang:prompt_tokens_total")


@dataclass(frozen=True)
class Layout:
    """How SGLang goes about its work."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


OVERLAP = Layout("overlap")
"""The default: the next batch runs before the result of the one before it is processed."""
NORMAL = Layout("normal", flags=("--disable-overlap-schedule",))
LOOPS = (OVERLAP, NORMAL)
MIXED = Layout("mixed", flags=("--enable-mixed-chunk",))
"""Prefill and decode in one batch."""


class Server(engine_server.Server):
    """An SGLang server. `STALLBOOK_SGLANG_RUNNER` may hold words to put before the command, such as `nice`."""

    def __init__(
        self, home: Path, output: Path, layout: Layout, log: Path | None, *, pool: int = SMALL_POOL,
        environment: Mapping[str, str] | None = None, flags: tuple[str, ...] = (), model: str = "tiny",
    ) -> None:  # fmt: skip
        super().__init__(output, log, ENVIRONMENT | dict(layout.environment) | dict(environment or {}))
        words = [*shlex.split(os.environ.get("STALLBOOK_SGLANG_RUNNER", "")), sys.executable, "-m"]
        words += ["sglang.launch_server", "--model-path", str(home / model), "--port", str(self.port)]
        words += ["--max-total-tokens", str(pool)]
        self.start([*words, *FLAGS, *layout.flags, *flags])

    def counters(self) -> dict[str, int]:
        """SGLang's own counts, by name, added up over ranks."""
        return count(self.metrics(), *COUNTERS)

    def role_of(self, pid: int) -> str:
        """`api`, `engine`, `detokenizer`, `other`: SGLang names its processes."""
        told = command_line(pid)
        for word, role in (("sglang::scheduler", "engine"), ("sglang::detokenizer", "detokenizer")):
            if word in told:
                return role
        return "api" if pid == self.process.pid else "other"


@contextmanager
def serving(*words: Any, **named: Any) -> Iterator[Server]:
    """A healthy server that is gone afterwards, whatever happens."""
    server = Server(*words, **named)
    try:
        server.wait()
        yield server
    finally:
        server.stop() if server.process.poll() is None else server.reap()


async def ask(session: aiohttp.ClientSession, url: str, one: Ask) -> Answer:
    """Send one request and take its chunks as they come.

    It is not to end before its last token. That `ignore_eos` would say, too; but then SGLang keeps room for all of its
    tokens from the start, and never retracts.
    """
    prompt = {"text": one.prompt} if isinstance(one.prompt, str) else {"input_ids": one.prompt}
    limits = {
        "max_new_tokens": one.max_tokens, "min_new_tokens": one.max_tokens, "temperature": one.temperature,
    }  # fmt: skip
    body = {"rid": one.name, "stream": True, "sampling_params": limits, **prompt}
    answer = await engine_load.stream(session, f"{url}/generate", one, body, _take)
    if not answer.error and answer.tokens != one.max_tokens:
        answer.error = f"{answer.tokens} tokens of {one.max_tokens}"
    return answer


def _take(answer: Answer, now: int, told: dict[str, Any]) -> None:
    if "error" in told:
        answer.error = json.dumps(told["error"])
        return
    about = told["meta_info"]
    answer.chunks.append((now, about["completion_tokens"] - answer.tokens))
    answer.prompt_tokens, answer.tokens = about["prompt_tokens"], about["completion_tokens"]


def load(url: str, asks: Sequence[Ask], at_once: int = 12) -> list[Answer]:
    """All of them, at most so many at a time."""
    return engine_load.load(url, asks, at_once, ask)
