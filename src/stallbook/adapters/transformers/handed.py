"""Tokens as they are handed out, one by one and on any thread, put together to deliveries.

Mostly a delivery is like the one before it: the same requests in the same order, a token each. Such a one leaves no
more than its time: a tuple a token would be cold by the time it is written, on another thread.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

__all__ = ["Delivery", "Handed"]

_AT_ONCE_NS: Final = 1_000_000
"""Tokens that were handed out one after the other, with less between any two, were handed out at once."""
_MOST: Final = 1 << 16
"""Deliveries that are kept until they are written."""

Delivery = tuple[list[str], list[int], int]
"""Requests, how many tokens each got, and when the last of them had its own."""


class Handed:
    """`put` and `take` may be called on different threads."""

    __slots__ = ("_at", "_done", "_last", "_lock", "_names", "_next", "_tokens", "_usual")

    def __init__(self) -> None:
        self._lock = Lock()
        self._done: list[Delivery | int] = []
        self._usual: list[str] = []
        """Who was in the last delivery, if each got one token."""
        self._next: str | None = None
        """Who is handed a token next, if this delivery is like the last; nobody if it cannot be."""
        self._at = self._last = 0
        """How many of these have been handed the next one; when somebody was handed a token last."""
        self._names: list[str] = []
        """Who is in a delivery that is not like the last, and `_tokens`, with how many."""
        self._tokens: list[int] = []

    def __bool__(self) -> bool:
        """Whether there is something to take, now or soon."""
        return bool(self._done or self._at or self._names)

    def put(self, request: str, tokens: int, t: int) -> None:
        """A request was handed so many tokens at `t`."""
        with self._lock:
            if request == self._next and tokens == 1 and (not self._at or t - self._last <= _AT_ONCE_NS):
                self._last = t
                self._goes_on()
            else:
                self._differs(request, tokens, t)

    def take(self, now: int) -> list[Delivery | int]:
        """What was handed out since the last time, one delivery after the other; of one that is like the one before it,
        only when. One that may go on stays.
        """
        with self._lock:
            if now - self._last > _AT_ONCE_NS:
                self._end()
            done, self._done = self._done, []
            return done

    def _goes_on(self) -> None:
        """As the last delivery did."""
        self._at += 1
        if self._at == len(self._usual):
            self._at = 0
            self._keep(self._last)
        self._next = self._usual[self._at] if self._usual else None

    def _differs(self, request: str, tokens: int, t: int) -> None:
        """What is open goes on otherwise than the last one, or is over; or this is the first delivery of its kind."""
        if self._at or self._names:
            self._tell()
            if t - self._last > _AT_ONCE_NS or request in self._names:
                self._end()
        self._last = t
        if not self._names and tokens == 1 and request == (self._usual[0] if self._usual else None):
            self._goes_on()
        else:
            self._names.append(request)
            self._tokens.append(tokens)
            self._next = None

    def _tell(self) -> None:
        """What is open is told in full."""
        if self._at:
            self._names, self._tokens, self._at = self._usual[: self._at], [1] * self._at, 0

    def _end(self) -> None:
        self._tell()
        if self._names:
            names, tokens = self._names, self._tokens
            self._names, self._tokens = [], []
            self._usual = names if tokens.count(1) == len(tokens) else []
            self._keep((names, tokens, self._last))
            self._next = self._usual[0] if self._usual else None

    def _keep(self, one: Delivery | int) -> None:
        if len(self._done) < _MOST:
            self._done.append(one)
        else:
            self._done, self._usual = [], []  # nobody writes them: what comes next is told in full
