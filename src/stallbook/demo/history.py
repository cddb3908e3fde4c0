"""What the collector has to walk: a server's start-up heap, and a record of every token that was emitted.

`ObjectHistory` is how a metrics store or a streaming buffer is often written: seven objects a token, all of
them alive to the end. `CompactHistory` keeps the same facts in one flat array that the collector cannot see.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["HEAP_OBJECTS", "CompactHistory", "History", "Logprob", "ObjectHistory", "TokenRecord", "startup_heap"]

HEAP_OBJECTS: Final = 400_000
TOP: Final = 5
"""Log-probabilities kept per token, as the usual `top_logprobs` answers have."""


@dataclass(eq=False, slots=True)
class Logprob:
    """One entry of a token's top log-probabilities."""

    token: int
    logprob: float
    rank: int


@dataclass(eq=False, slots=True)
class TokenRecord:
    """One emitted token as a streaming server would keep it."""

    request: str
    token: int
    at_ns: int
    top: dict[int, Logprob]


class History(Protocol):
    """Keeps a record of each emitted token."""

    def add(self, request: str, index: int, token: int, at_ns: int) -> None:
        """Record one token of one request (`index` is the request's number)."""


class ObjectHistory:
    """A Python object a token, with five more inside it."""

    def __init__(self) -> None:
        self.records: list[TokenRecord] = []

    def add(self, request: str, index: int, token: int, at_ns: int) -> None:
        """See `History`."""
        top = {token + rank: Logprob(token + rank, -0.5 - rank, rank) for rank in range(TOP)}
        self.records.append(TokenRecord(request, token, at_ns, top))


class CompactHistory:
    """The same facts as numbers in one array."""

    def __init__(self) -> None:
        self.values = array("d")

    def add(self, request: str, index: int, token: int, at_ns: int) -> None:
        """See `History`."""
        self.values.extend((index, token, at_ns, -0.5, -1.5, -2.5, -3.5, -4.5))


def startup_heap(objects: int = HEAP_OBJECTS) -> list[dict[str, object]]:
    """What a server drags along from its start: configurations, registries, maps. Keep it alive for the run."""
    return [{"id": i, "name": f"entry-{i}", "parts": [i, str(i)]} for i in range(objects)]
