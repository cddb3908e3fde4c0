"""Streaming requests from threads, standard library alone. Each stream is kept as it came, line by line."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any


@dataclass(frozen=True)
class Ask:
    """One request. after: seconds after the first one is sent. timings: ask for the server's own of each token."""

    prompt: list[int]
    max_tokens: int
    after: float = 0.0
    path: str = "/v1/completions"
    timings: bool = True


@dataclass
class Answer:
    """What came: the lines of the stream as they are, and when each came."""

    lines: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    status: int = 0

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The objects of the stream."""
        return [json.loads(line[6:]) for line in self.lines if line.startswith(b"data: {")]

    @property
    def error(self) -> str:
        """What the server told that went wrong."""
        told = [json.loads(line.partition(b": ")[2]) for line in self.lines if line.startswith(b"error: {")]
        told += [chunk for chunk in self.chunks if "error" in chunk]
        return json.dumps(told[0]) if told else "" if self.status == 200 else f"status {self.status}"


def ids(rng: Random, count: int) -> list[int]:
    """So many words of the tiny model's vocabulary, as tokens."""
    return [rng.randrange(300, 1000) for _ in range(count)]


def ask(url: str, one: Ask, answer: Answer) -> None:
    """Send one request and keep what comes."""
    body = {
        "prompt": one.prompt, "max_tokens": one.max_tokens, "n_predict": one.max_tokens, "stream": True,
        "timings_per_token": one.timings, "ignore_eos": True, "temperature": 0.0, "cache_prompt": False,
    }  # fmt: skip
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=100)
    connection.request("POST", one.path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer.status = response.status
    for line in response:
        answer.times.append(time.perf_counter_ns())
        answer.lines.append(line)
    connection.close()


def load(url: str, asks: Sequence[Ask]) -> list[Answer]:
    """All of them, each at its time."""
    answers = [Answer() for _ in asks]

    def later(one: Ask, answer: Answer) -> None:
        time.sleep(one.after)
        ask(url, one, answer)

    threads = [threading.Thread(target=later, args=pair) for pair in zip(asks, answers, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def save(answers: Sequence[Answer], path: Path) -> None:
    """The streams, one after another, as `curl -N` would have kept them."""
    path.write_bytes(b"".join(line for answer in answers for line in answer.lines))
