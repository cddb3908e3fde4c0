"""How a vLLM server is asked: a completion, streamed, with the ids of its tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import aiohttp

import engine_load
from engine_load import Answer, Ask, calm, ids, mixed, save

__all__ = ["Answer", "Ask", "ask", "calm", "ids", "load", "mixed", "save"]


def load(url: str, asks: Sequence[Ask], at_once: int = 32) -> list[Answer]:
    """All of them, at most so many at a time."""
    return engine_load.load(url, asks, at_once, ask)


async def ask(session: aiohttp.ClientSession, url: str, one: Ask) -> Answer:
    """Send one request and take its chunks as they come."""
    body = {
        "model": "tiny", "prompt": one.prompt, "max_tokens": one.max_tokens, "temperature": one.temperature,
        "ignore_eos": True, "stream": True, "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    headers = {"X-Request-Id": one.name}
    return await engine_load.stream(session, f"{url}/v1/completions", one, body, _take, headers)


def _take(answer: Answer, now: int, told: dict[str, Any]) -> None:
    if told.get("choices"):
        answer.chunks.append((now, len(told["choices"][0].get("token_ids") or ())))
    if usage := told.get("usage"):
        answer.prompt_tokens, answer.tokens = usage["prompt_tokens"], usage["completion_tokens"]
    elif "error" in told:
        answer.error = json.dumps(told["error"])
