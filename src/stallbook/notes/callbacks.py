"""Tokens that an engine hands to callbacks, a step's at once: which those are, from the steps and from who has one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from stallbook.notes.records import Records

__all__ = ["Callbacks"]

_MOST: Final = 1 << 12
"""Steps and requests whose tokens may be handed out yet."""


class Callbacks:
    """Who is handed what. A request that streams is handed each token as it comes; another one all once it is done."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._streams: dict[int, bool] = {}
        """Who has a callback, and whether it streams."""
        self._owed: dict[int, int] = {}
        """Tokens so far of those that do not."""
        self._going: dict[int, Mapping[int, int]] = {}
        """What of each step goes to callbacks."""
        self._missed: dict[int, int] = {}
        """Tokens that did not get there."""
        self._step = self._end = 0
        """The last step that emitted, and when it was done with."""
        self._tokens: Mapping[int, int] | None = None
        """What it emitted, `_now`, what goes to callbacks of that, and `_late`, whose are kept until they are done."""
        self._now: Mapping[int, int] = {}
        self._late: Sequence[int] = ()
        self._told: Mapping[int, int] | None = None
        """What was told last, unless something else was since."""

    def renew(self) -> None:
        """Another engine begins. What is on its way is handed out yet."""
        self._streams.clear()
        self._owed.clear()
        self._missed.clear()
        self._tokens = None

    def lost(self) -> None:
        """Some notes could not be told: so it is not known what those are owed that do not stream."""
        self._streams = {one: True for one, streams in self._streams.items() if streams}
        self._owed.clear()
        self._going.clear()
        self._missed.clear()
        self._tokens = self._told = None

    def others(self) -> None:
        """Something else was handed out."""
        self._told = None

    def has(self, request: int, streams: int) -> None:
        """A request has a callback."""
        self._streams[request], self._tokens = bool(streams), None

    def emitted(self, step: int, t1: int, tokens: Mapping[int, int]) -> None:
        """A step emitted these tokens, and was done with at `t1`."""
        if not self._streams:
            return
        if tokens is not self._tokens:
            streams = self._streams
            self._tokens = tokens
            self._now = {one: count for one, count in tokens.items() if streams.get(one)}
            self._late = [one for one in tokens if streams.get(one) is False]
        for one in self._late:
            self._owed[one] = self._owed.get(one, 0) + tokens[one]
        self._step, self._end = step, t1
        self._going[step] = self._now
        _forget_oldest(self._going)

    def finished(self, requests: Collection[int], t: int) -> None:
        """Requests are done: in the last step, if `t` is its end, else they were given up."""
        ended = [one for one in requests if self._streams.pop(one, None) is False]
        if ended and t == self._end and self._step in self._going:
            paid = {one: self._owed.pop(one) for one in ended if one in self._owed}
            self._going[self._step] = {**self._going[self._step], **paid}
        _forget_oldest(self._owed)

    def handed(self, t: int, step: int) -> None:
        """What of a step goes to callbacks was handed out. What went before it and was not will not be by itself: a
        callback raised, and as each is given all of an answer so far, who is called now gets what was missed.
        """
        going, missed = self._going.pop(step, {}), self._missed
        for old in [one for one in self._going if one < step]:
            for one, count in self._going.pop(old).items():
                missed[one] = missed.get(one, 0) + count
        if missed:
            going = {one: count + missed.pop(one, 0) for one, count in going.items()}
            _forget_oldest(missed)
        if going is self._told:
            self._records.delivered_again(t)
        elif going:
            self._records.delivered([*going], [*going.values()], t)
            self._told = going

    def rest(self, t: int, request: int) -> None:
        """A request that failed was handed what it is owed."""
        if owed := self._owed.pop(request, 0):
            self._records.delivered([request], [owed], t)
            self._told = None


def _forget_oldest(found: dict[int, Any]) -> None:
    if len(found) > _MOST:
        del found[next(iter(found))]
