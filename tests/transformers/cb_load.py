"""How `transformers serve` is asked: a text completion, streamed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from tokenizers import Tokenizer

import engine_load
from engine_load import Answer, Ask

__all__ = ["Texts", "load"]


class Texts:
    """Texts of so many tokens: made of words that are a token each."""

    def __init__(self, model: Path) -> None:
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        words = [tokenizer.decode([token]) for token in range(300, tokenizer.get_vocab_size())]
        self.words = [word for word in words if word.startswith(" ") and len(tokenizer.encode(word).ids) == 1]

    def of(self, tokens: int, seed: int) -> str:
        """A text of exactly so many."""
        return "".join(Random(seed).choices(self.words, k=tokens))


def load(url: str, asks: Sequence[Ask], at_once: int) -> list[Answer]:
    """All of them, at most so many at a time."""
    return engine_load.load(url, asks, at_once, ask)


async def ask(session: aiohttp.ClientSession, url: str, one: Ask) -> Answer:
    """Send one request and take its chunks as they come; a chunk holds a token, or some when the server was late."""
    body = {"prompt": one.prompt, "max_tokens": one.max_tokens, "stream": True}
    headers = {"X-Request-Id": one.name}
    return await engine_load.stream(session, f"{url}/v1/completions", one, body, _take, headers)


def _take(answer: Answer, now: int, told: dict[str, Any]) -> None:
    if "error" in told:
        answer.error = str(told["error"])
    if usage := told.get("usage"):
        answer.prompt_tokens, answer.tokens = usage["prompt_tokens"], usage["completion_tokens"]
    elif told.get("choices"):
        answer.chunks.append((now, 1))
