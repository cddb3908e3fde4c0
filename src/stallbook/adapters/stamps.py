"""Stamps that run no Python code: a clock read kept in a queue, by built-in iterators alone.

An engine's own scopes (`with scope("forward"):`) are entered many times a step, and behind a forward pass a Python
function costs microseconds. Such a stamp costs less than the null context that the engine would use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import Any, Final

__all__ = ["Scopes", "Stamps"]

_MOST: Final = 256
"""Stamps of one name that are kept: a step has one or two, and outside of steps nobody takes them."""


class Stamps:
    """Queues of clock reads, one for each name: `queues[name]`."""

    __slots__ = ("clock", "queues")

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.queues: dict[int, deque[int]] = {}

    def queue(self, name: int) -> deque[int]:
        """The queue of a name."""
        return self.queues.setdefault(name, deque(maxlen=_MOST))

    def stamp(self, name: int) -> Callable[[], Any]:
        """A callable that keeps the time. `map` takes the clock's next value and appends it, all in C."""
        return map(self.queue(name).append, iter(self.clock, None)).__next__

    def take(self) -> list[tuple[int, int]]:
        """What was stamped since the last call, as (time, name), in order of time."""
        found: list[tuple[int, int]] = []
        for name, queue in self.queues.items():
            found += zip(queue, repeat(name), strict=False)
            queue.clear()
        found.sort()
        return found

    def noted(self) -> list[int]:
        """What was stamped since the last call: how many names; of each its number, how many stamps, and when."""
        stamped = [(name, queue) for name, queue in self.queues.items() if queue]
        found = [len(stamped)]
        for name, queue in stamped:
            found += (name, len(queue))
            found += queue
            queue.clear()
        return found


class Scopes(dict[str, Any]):
    """Context managers by the name of the engine's scope; one that nothing was asked of does nothing.

    `__getitem__` is what the engine may call in place of its own factory. The context managers are objects of classes
    whose `__enter__` and `__exit__` are built-in callables: `int()` and `"".format(...)` return something false.
    """

    def __init__(self) -> None:
        super().__init__()
        self.null = self.scope()

    def __missing__(self, name: str) -> Any:
        self[name] = self.null
        return self.null

    @staticmethod
    def scope(enter: Callable[[], Any] = int, leave: Callable[[], Any] | None = None) -> Any:
        """A context manager that calls `enter()` and `leave()`."""
        body: dict[str, Any] = {"__slots__": (), "__enter__": staticmethod(enter), "__exit__": staticmethod("".format)}
        if leave is not None:

            def left(*_: object) -> None:
                leave()

            body["__exit__"] = staticmethod(left)
        return type("Scope", (), body)()
