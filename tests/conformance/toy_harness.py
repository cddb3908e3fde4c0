"""The toy engine as the suite sees it: `python -m stallbook.conformance toy_harness:ENGINE`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stallbook.conformance import Answer, Ask, Counted, Limits, Script

HERE = Path(__file__).parent


class Server:
    """A toy engine in a process of its own."""

    def __init__(self, folder: Path, log: Path | None, environment: Mapping[str, str]) -> None:
        self.output = folder / "stderr.txt"
        told = {**os.environ, **environment} | ({"STALLBOOK": str(log)} if log else {})
        program = HERE / ("toy_adapter.py" if log else "toy_engine.py")
        with self.output.open("w") as printed:
            self.process = subprocess.Popen(
                [sys.executable, str(program)], env=told, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=printed,
            )  # fmt: skip
        self.read()

    def write(self, told: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def load(self, asks: Sequence[Ask], at_once: int) -> list[Answer]:
        left, answers = list(asks), list[Answer]()
        for _ in range(len(asks) + at_once):
            if left:
                one = left.pop(0)
                self.write({"name": one.name, "prompt": one.prompt_tokens, "limit": one.max_tokens})
            if len(asks) - len(left) - len(answers) >= at_once or not left:
                answers.append(Answer(**json.loads(self.read())))
            if len(answers) == len(asks):
                break
        return answers

    def counted(self) -> Counted:
        self.write(None)
        return Counted(**json.loads(self.read()))

    def pids(self) -> dict[str, int]:
        return {"engine": self.process.pid}

    def said(self) -> str:
        return self.output.read_text()

    def stop(self) -> None:
        self.process.communicate(timeout=60)  # the end of its input ends it


class Toy:
    """How it is started. Its 28 blocks of 16 tokens do not hold eight of these requests."""

    name = "toy 1.0"
    script = Script(requests=40, prompts=(8, 60), answers=(16, 60), at_once=8)
    limits = Limits()

    def start(self, folder: Path, log: Path | None, environment: Mapping[str, str]) -> Server:
        return Server(folder, log, environment)


ENGINE = Toy()
