"""transformers' batches where they are made and come back, while they are in the cache: who is in one, and its step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

__all__ = ["Batches", "Plan"]

_STATE, _ID = attrgetter("state"), attrgetter("state.request_id")
_WAITING: Final = (0, 3)
"""`RequestStatus` of a request that gets none of the tokens in flight: pending, finished."""
_LENGTH, _NEW = attrgetter("query_length"), attrgetter("has_new_token")


class Plan:
    """Who is in a batch, with how many tokens. steady: all decode, so that each gets one more in a batch of as many."""

    __slots__ = ("_lengths", "_new", "handles", "states", "steady")

    def __init__(self, batch: list[Any], handle_of: Callable[[Any], int]) -> None:
        self.states = list(map(_STATE, batch))
        self._lengths = list(map(_LENGTH, batch))
        self._new = list(map(_NEW, batch))
        self.steady = self._lengths.count(1) == self._new.count(True) == len(batch)
        self.handles: Sequence[int] = list(map(handle_of, self.states))

    def again(self, batch: list[Any], queries: int) -> bool:
        """Whether `batch` is of the same requests, decoding. queries: its tokens, or more, where they are padded."""
        return (
            self.steady
            and list(map(_STATE, batch)) == self.states
            and (queries == len(batch) or list(map(_LENGTH, batch)) == self._lengths)
        )

    def noted(self) -> Iterable[int]:
        """As `stallbook.notes.transformers.PLAN`."""
        return len(self.handles), *self.handles, *self._lengths, *self._new


class Batches:
    """The batches of one manager. handle_of: gives a request's handle, and one that was never seen a new one."""

    def __init__(self, handle_of: Callable[[Any], int]) -> None:
        self._handle_of = handle_of
        self._latest: Plan | None = None
        self._flying: deque[tuple[list[Any], int, Plan]] = deque()

    def tell_anew(self) -> None:
        """The next batch is not taken to be as the one before."""
        self._latest = None

    def takes_off(self, batch: list[Any], queries: int, step: int) -> Plan | None:
        """A batch was scheduled as that step: who is in it, unless as in the one before. queries: see `again`."""
        plan, new = self._latest, None
        if plan is None or not plan.again(batch, queries):
            plan = new = self._latest = Plan(batch, self._handle_of)
        self._flying.append((batch, step, plan))
        return new

    def flies(self, handle: int) -> bool:
        """Whether a request is in a batch that has not come back."""
        return any(handle in plan.handles for _, _, plan in self._flying)

    def lands(self, batch: list[Any], ahead: bool) -> tuple[int, Collection[int]]:
        """A batch's step, and the handles of whoever gets none of its tokens any more; 0 if it is none of ours. Those
        that were scheduled before never emit. ahead: whether the next one may be made while one runs.
        """
        flying = self._flying
        while flying:
            one, step, plan = flying.popleft()
            if one is batch:
                if not ahead:
                    return step, ()
                states = zip(plan.handles, plan.states, strict=True)
                return step, [handle for handle, state in states if state.status in _WAITING]
        return 0, ()
