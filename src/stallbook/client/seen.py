"""Plain data: what one client saw of its requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

__all__ = ["UNSTATED", "Chunk", "Request", "Seen"]

UNSTATED: Final = -1
"""The tokens of a chunk that does not say how many it holds."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer: when it came, and its tokens. text: whether it brought any text, so one token or more."""

    t: int
    tokens: int = UNSTATED
    text: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """One request. name: what it sent as X-Request-ID. start: when it was sent, None if not told.

    prompt_tokens: as the server told, -1 if it did not.
    """

    name: str
    start: int | None
    chunks: tuple[Chunk, ...]
    prompt_tokens: int = -1


@dataclass
class Seen:
    """A client's log. left_out: what of it could not be used, counted by reason.

    served: its times are the server's own, counted from when that began with the prompt; else the client's clock's.
    """

    path: str
    tool: str
    requests: list[Request] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    served: bool = False
