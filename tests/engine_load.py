"""Streaming load: requests of mixed lengths, each with an id of its own, and when each chunk of each answer came.

What the client saw is written as the simple form of docs/client.md, so that the tests read it as a user would.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from tiny_model import words

FEWEST, MOST = 48, 192
"""Tokens of an answer."""


@dataclass(frozen=True)
class Ask:
    """One request: text, or token ids."""

    name: str
    prompt: str | list[int]
    max_tokens: int
    temperature: float = 0.0


@dataclass
class Answer:
    """What came of it. chunks: (ns, tokens) of each. error: empty if all went well."""

    name: str
    start: int
    chunks: list[tuple[int, int]] = field(default_factory=list)
    prompt_tokens: int = 0
    tokens: int = 0
    error: str = ""


def mixed(seed: int, count: int, prefix: str = "") -> list[Ask]:
    """Mostly short prompts, a third of some hundred tokens, a tenth of thousands; half as text, half as token ids."""
    rng = Random(seed)
    return [_mixed(rng, f"{prefix or 'r'}-{seed}-{i}") for i in range(count)]


def _mixed(rng: Random, name: str) -> Ask:
    kind = rng.random()
    low, high = (2000, 3000) if kind < 0.10 else (200, 700) if kind < 0.45 else (16, 128)
    length = rng.randint(low, high)
    prompt = words(rng, int(length / 1.6)) if rng.random() < 0.5 else ids(rng, length)
    return Ask(name, prompt, rng.randint(FEWEST, MOST), rng.choice((0.0, 0.8)))


def calm(seed: int, count: int, tokens: int, prefix: str = "calm") -> list[Ask]:
    """Short prompts and answers of one length."""
    rng = Random(seed)
    return [Ask(f"{prefix}-{seed}-{i}", ids(rng, 16), tokens) for i in range(count)]


def ids(rng: Random, count: int) -> list[int]:
    """So many tokens of no meaning."""
    return [rng.randint(3, 3600) for _ in range(count)]


Send = Callable[[aiohttp.ClientSession, str, Ask], Awaitable[Answer]]
"""An engine's own way to ask: of a server at that URL."""


Take = Callable[[Answer, int, dict[str, Any]], None]
"""What an engine's chunk, which came at that time, says of the answer."""


async def stream(
    session: aiohttp.ClientSession, url: str, one: Ask, body: Mapping[str, Any], take: Take,
    headers: Mapping[str, str] | None = None,
) -> Answer:  # fmt: skip
    """Send one request and take the chunks of its answer as they come."""
    answer = Answer(one.name, time.perf_counter_ns())
    try:
        async with session.post(url, json=body, headers=headers) as response:
            if response.status != 200:
                answer.error = f"{response.status}: {await response.text()}"
                return answer
            async for line in response.content:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    take(answer, time.perf_counter_ns(), json.loads(line[6:]))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        answer.error = repr(error)
    return answer


async def ask_all(url: str, asks: Sequence[Ask], at_once: int, send: Send) -> list[Answer]:
    """All of them, at most so many at a time."""
    room = asyncio.Semaphore(at_once)
    limits = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=170)
    async with aiohttp.ClientSession(connector=limits[0], timeout=limits[1], read_bufsize=1 << 20) as session:

        async def within(one: Ask) -> Answer:
            async with room:
                return await send(session, url, one)

        return list(await asyncio.gather(*(within(one) for one in asks)))


def load(url: str, asks: Sequence[Ask], at_once: int, send: Send) -> list[Answer]:
    """All of them, from code that is not asynchronous."""
    return asyncio.run(ask_all(url, asks, at_once, send))


def save(answers: Sequence[Answer], path: Path) -> None:
    """The client's own log."""
    with path.open("w", encoding="utf-8") as file:
        for one in answers:
            chunks = [{"t": t, "tokens": tokens} for t, tokens in one.chunks]
            file.write(json.dumps({"request": one.name, "start": one.start, "chunks": chunks}) + "\n")
