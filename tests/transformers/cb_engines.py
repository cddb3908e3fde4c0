"""transformers as the conformance suite sees it: in a program of its own, and as `transformers serve`.

`python -m stallbook.conformance cb_engines:PROGRAM`, in the environment of `make test-transformers`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import cb_load

import engine_server
from engine_load import Ask as TextAsk
from stallbook.conformance import Answer, Ask, Counted, Limits, Script

HERE, BIN = Path(__file__).parent, Path(sys.prefix) / "bin"
HOME = Path(sys.prefix).parent
MODEL = HOME / "endless"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip
"""One thread: a second one would wait for the first to finish its part, and for a core."""
SCRIPT = Script(requests=60, prompts=(8, 90), answers=(16, 64), at_once=24)
BLOCK, BLOCKS, BUDGET = 16, 76, 128
"""Blocks of so many tokens, so few that the script's requests do not find room; tokens of a step, so few that a prompt
may take several."""


def attached(words: Sequence[str], log: Path | None) -> list[str]:
    """As its user would have it recorded."""
    return [str(BIN / "stallbook"), "attach", "--out", str(log), "--", *words] if log else list(words)


class Program:
    """`cb_program.py` in a process of its own."""

    def __init__(self, folder: Path, log: Path | None, environment: Mapping[str, str]) -> None:
        self.output = folder / "stderr.txt"
        given = {key: value for key, value in os.environ.items() if not key.startswith("STALLBOOK")}
        words = [sys.executable, str(HERE / "cb_program.py"), str(MODEL), "--page_size", str(BLOCK)]
        words += ["--num_blocks", str(BLOCKS), "--max_batch_tokens", str(BUDGET), "--max_requests_per_batch", "32"]
        with self.output.open("w") as printed:
            self.process = subprocess.Popen(
                attached(words, log), env={**given, **ENVIRONMENT, **environment}, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=printed,
            )  # fmt: skip
        if self.read() != "ready\n":
            raise RuntimeError(self.said()[-2000:])

    def write(self, told: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def load(self, asks: Sequence[Ask], at_once: int) -> list[Answer]:
        left, answers = list(asks), list[Answer]()
        while len(answers) < len(asks):
            while left and len(asks) - len(left) - len(answers) < at_once:
                one = left.pop(0)
                told = {"prompt": one.prompt_tokens, "limit": one.max_tokens, "seed": one.seed}
                self.write({"name": one.name, **told})
            answers.append(Answer(**json.loads(self.read())))
        return answers

    def counted(self) -> Counted:
        self.write(None)
        return Counted(**json.loads(self.read()))

    def pids(self) -> dict[str, int]:
        return {"engine": self.process.pid}

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def stop(self) -> None:
        killer = threading.Timer(60, self.process.kill)
        killer.start()
        self.process.communicate()  # the end of its input ends it
        killer.cancel()


class Serve(engine_server.Server):
    """`transformers serve`, asked for text completions."""

    def __init__(
        self, folder: Path, log: Path | None, environment: Mapping[str, str], blocks: int = BLOCKS,
        model: Path = MODEL,
    ) -> None:  # fmt: skip
        super().__init__(folder / "server.txt", log, ENVIRONMENT | dict(environment))
        words = [
            sys.executable,
            str(HERE / "cb_serve.py"),
            "serve",
            str(model),
            "--continuous-batching",
            "--port",
            str(self.port),
        ]
        words += ["--cb-block-size", str(BLOCK), "--cb-num-blocks", str(blocks), "--cb-max-batch-tokens", str(BUDGET)]
        words += ["--device", "cpu", "--dtype", "float32", "--attn-implementation", "sdpa", "--host", "127.0.0.1"]
        self.start(attached(words, log))
        self.tokens = 0
        self.wait()

    def load(self, asks: Sequence[Ask], at_once: int) -> list[Answer]:
        texts = cb_load.Texts(MODEL)
        sent = [TextAsk(one.name, texts.of(one.prompt_tokens, one.seed), one.max_tokens) for one in asks]
        self.answers = cb_load.load(self.url, sent, at_once)
        self.tokens += sum(one.tokens for one in self.answers)
        return [Answer(one.name, one.tokens, one.error) for one in self.answers]

    def counted(self) -> Counted:
        offloaded = re.findall(r"Offloaded (\d+) requests", self.said())
        return Counted(self.tokens, sum(map(int, offloaded)))

    def role_of(self, pid: int) -> str:
        return "engine" if pid == self.process.pid else super().role_of(pid)

    def pids(self) -> dict[str, int]:
        return {"engine": self.process.pid}

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def stop(self, *words: Any, **named: Any) -> int:
        if self.process.poll() is None:
            return super().stop(*words, **named)
        self.reap()
        return self.process.returncode


class Engine:
    """How one of the two is started."""

    script = SCRIPT
    limits = Limits(cost=0.01, cost_ns=100_000)
    """Twice what the suite allows, and what docs/transformers.md measures: machines differ, and this runs in CI."""

    def __init__(self, name: str, kind: type[Program] | type[Serve]) -> None:
        self.name, self.kind = name, kind

    def start(self, folder: Path, log: Path | None, environment: Mapping[str, str]) -> Program | Serve:
        return self.kind(folder, log, environment)


PROGRAM = Engine("transformers in a program", Program)
SERVE = Engine("transformers serve", Serve)
