"""The requests of a llama.cpp log while it is read; the server calls them tasks, and numbers them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from stallbook.log.draft import Draft
from stallbook.log.llama_pass import Row
from stallbook.run import UNKNOWN

__all__ = ["Task", "Tasks"]

_ENDS: Final = ("arrivals", "admits", "finishes")


@dataclass(slots=True)
class Task:
    """A request: its row, and how far it is."""

    request: int
    line: int
    arrive: int = UNKNOWN
    admit: int = UNKNOWN
    """When the server began with its prompt, which is where its own timings begin."""
    prompt: int = -1
    limit: int = -1
    tokens: int = 0
    delivered: int = 0
    emitted: int = UNKNOWN
    sent: int = UNKNOWN
    """When something was handed on for it last."""
    chunk: tuple[int, int, Row] | None = None
    """The step in which a part of its prompt began, the prompt tokens that were there before, its row of the batch."""


class Tasks:
    """All of them. What is over is only kept as rows of tables."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._live: dict[int, Task] = {}
        self.arrived: dict[int, int] = {}
        self.deferred: set[int] = set()
        self.first_line = 0
        self.tokens = 0
        self._deliveries = {name: array("q") for name in ("request", "t", "tokens")}

    def get(self, task: int, line: int) -> Task:
        """A request that runs, also one whose beginning the log does not hold."""
        return self._live.get(task) or self.launch(task, line)

    def launch(self, task: int, line: int) -> Task:
        """It was given a slot."""
        self.first_line = self.first_line or line
        self.deferred.discard(task)
        one = Task(self._draft.request(f"task-{task}"), line, self.arrived.pop(task, UNKNOWN))
        self._live[task] = one
        return one

    def send(self, task: int, t: int) -> None:
        """Something was handed on for it: tokens, if there are any that were not yet."""
        if one := self._live.get(task):
            one.sent = t

    def token(self, one: Task, count: int, left: int, done: int) -> int:
        """Its tokens are so many now; how many of them are new."""
        new, one.tokens = max(count - one.tokens, 0), max(count, one.tokens)
        self.tokens += new
        if new > 1:
            self._draft.notes["tokens_without_a_line"] += new - 1
        if left >= 0:
            one.limit = count + left
        one.emitted = done
        self._deliver(one)
        return new

    def release(self, task: int, t: int) -> None:
        """Its slot is free again: it is over."""
        one = self._live.pop(task, None)
        if one is None:
            return
        self._deliver(one)
        self._draft.add("finishes", one.line, request=one.request, t=t)
        self._told(one)

    def close(self) -> None:
        """The log ends."""
        for one in self._live.values():
            self._told(one)
        self._live.clear()
        self._draft.extend("deliveries", self._deliveries)

    def _deliver(self, one: Task) -> None:
        """What was handed on after it was emitted; bytes that are no character yet wait for the next token."""
        new = one.tokens - one.delivered
        if new <= 0 or one.sent < one.emitted:
            return
        one.delivered = one.tokens
        for column, value in zip(self._deliveries.values(), (one.request, one.sent, new), strict=True):
            column.append(value)

    def _told(self, one: Task) -> None:
        given = {"prompt_tokens": one.prompt, "max_tokens": one.limit}
        self._draft.add("arrivals", one.line, request=one.request, t=one.arrive, **given)
        if one.admit != UNKNOWN:
            self._draft.add("admits", one.line, request=one.request, t=one.admit)
