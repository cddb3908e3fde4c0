"""Notes are numbers: a kind, and what belongs to it. Those that every engine's hooks leave, and how all are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from stallbook.notes.records import Records
from stallbook.notes.steps import Steps

__all__ = [
    "BLOCKED", "BY_BUDGET", "BY_KV", "BY_SEQS", "GRAPH", "OWN", "STAMPS", "WINDOWS", "Told", "Words", "row",
    "settings_of",
]  # fmt: skip

STAMPS, WINDOWS, GRAPH, BLOCKED = range(4)
"""Of each name its stamps: how many names; then of each its number, how many, and when. Comes first.
Windows of a step: its number; 1 on a device, 0 inside its marks; how many; of each its name, start and end.
A forward pass's time, graph code and padded size.
What keeps the first waiting request out. Comes last.
"""
BY_KV, BY_SEQS, BY_BUDGET = 1, 2, 3
"""What that may be, as in `stallbook.run`: KV blocks, the limit of requests, the token budget; 0: nothing."""
OWN: Final = 16
"""Where an engine's own kinds begin."""


class Words:
    """Numbers to be taken one after the other. IndexError beyond the last."""

    def __init__(self, words: Sequence[int]) -> None:
        self._words, self._at = words, 0

    def __bool__(self) -> bool:
        return self._at < len(self._words)

    def one(self) -> int:
        """The next."""
        return self.some(1)[0]

    def some(self, count: int) -> Sequence[int]:
        """The next ones."""
        start, self._at = self._at, self._at + count
        if count < 0 or self._at > len(self._words):
            raise IndexError("notes end early")
        return self._words[start : self._at]

    def listed(self) -> Sequence[int]:
        """A list: how many, then each."""
        return self.some(self.one())


class Told:
    """A teller of one engine's notes: `kinds` says of each kind how many words follow, -1 where it is told by the first
    of them, and what tells it.
    """

    def __init__(self, records: Records, steps: Steps) -> None:
        self.records, self.steps = records, steps
        self.kinds: dict[int, tuple[int, Callable[..., object]]] = {
            STAMPS: (-1, self._stamps), WINDOWS: (-1, self._windows), GRAPH: (3, self._graph),
        }  # fmt: skip

    def tell(self, t: int, waited: int, words: Sequence[int]) -> list[tuple[int, bytes]]:
        """See `stallbook.notes.Teller`. After an error what comes next is not like anything before."""
        try:
            self._tell(Words(words), waited)
        except Exception:
            self.records.take()
            self.lost()
            raise
        return self.records.take()

    def _tell(self, notes: Words, waited: int) -> None:
        kinds, blocked = self.kinds, -1
        while notes:
            kind = notes.one()
            if kind == BLOCKED:
                blocked = self.blocked(notes.one())
                continue
            count, then = kinds[kind]
            if count < 0:
                then(notes)
            else:
                then(*notes.some(count))
        self.steps.write(waited, blocked)

    def arrived(self, request: int) -> None:
        """A handle was given out."""
        self.steps.alive.add(request)

    def lost(self) -> None:
        """Some notes could not be told."""
        self.steps.lost()

    def blocked(self, code: int) -> int:
        """What kept the first waiting request out, from what the engine's queues looked like."""
        return code

    def _stamps(self, notes: Words) -> None:
        found: list[tuple[int, int]] = []
        for _ in range(notes.one()):
            name = notes.one()
            found += zip(notes.listed(), repeat(name), strict=False)
        self.steps.stamped(sorted(found))

    def _windows(self, notes: Words) -> None:
        step, device, count = notes.some(3)
        make = self.records.device_window if device else self.records.window
        found = self.steps.windows.setdefault(step, [])
        for _ in range(count):
            found.append(make(*notes.some(3)))

    def _graph(self, t: int, code: int, padded: int) -> None:
        self.steps.graphs.append((t, code, padded))


def row(requests: Sequence[int], counts: Sequence[int]) -> Mapping[int, int]:
    """What each request has; those that were never recorded, -1 all of them, told apart."""
    found: dict[int, int] = {}
    for i, (request, count) in enumerate(zip(requests, counts, strict=True)):
        found[request if request >= 0 else -1 - i] = count
    return found


def settings_of(settings: Mapping[str, Any]) -> Records:
    """Where the notes of a process with these settings are told to."""
    return Records(settings["names"], settings["os"])
