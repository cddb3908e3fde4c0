"""What the hooks of vLLM's engine core noted: what it scheduled, what that emitted, whom it evicted, who is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stallbook.notes.steps import Emission, Steps
from stallbook.notes.words import BY_BUDGET, OWN, Told, Words, row, settings_of

__all__ = ["EMITTED", "EVICTED", "FINISHED", "PLACED", "REPEATED", "SCHEDULED", "Teller", "each", "names"]

SCHEDULED, EMITTED, REPEATED, PLACED, EVICTED, FINISHED = range(OWN, OWN + 6)
"""A step was scheduled: number, start, end, the thread's CPU time, tokens in all.
A step emitted: number, when, end, CPU time, tokens scheduled in all; how many requests, their handles, tokens of each;
how many that got some, their handles, how many each.
The same of requests that got one token each, as in the last such step: number, when, end, CPU time.
Requests were scheduled for the first time, or are back: when, how many, their handles.
A request lost its cache: handle, tokens, when.
Requests are done: when, how many, their handles.
"""


def names(apart: bool) -> tuple[str, ...]:
    """What the teller uses."""
    return ("loop", "sched", "output", _handoff(apart))


def _handoff(apart: bool) -> str:
    return "ipc" if apart else "dispatch"


class Teller(Told):
    """Follows one engine core. apart: its workers are other processes. most: tokens that a step may take."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        records, apart = settings_of(settings), bool(settings["apart"])
        super().__init__(records, Steps(records, apart, _handoff(apart)))
        self.most = int(settings["most"])
        self.full = False
        self.usual = Emission({}, 0, {})
        """The last one in which each request got the one token that was scheduled for it."""
        self.kinds |= {
            SCHEDULED: (5, self._scheduled), EMITTED: (-1, self._emitted), REPEATED: (4, self._repeated),
            PLACED: (-1, self._placed), EVICTED: (3, self.steps.evict), FINISHED: (-1, self._finished),
        }  # fmt: skip

    def lost(self) -> None:
        """Some notes could not be told."""
        super().lost()
        self.usual = Emission({}, 0, {})

    def blocked(self, code: int) -> int:
        """If somebody waits, the last step may have taken all the tokens that one may take."""
        return BY_BUDGET if code > 0 and self.full else code

    def _scheduled(self, step: int, t0: int, t1: int, cpu: int, total: int) -> None:
        self.full = total >= self.most
        self.steps.scheduled(step, t0, t1, cpu)

    def _emitted(self, notes: Words) -> None:
        step, t, t1, cpu, total = notes.some(5)
        scheduled, tokens = _each(notes), _each(notes)
        if total == len(scheduled) == len(tokens) == sum(tokens.values()):
            self.usual = Emission(scheduled, total, tokens)
        self.steps.emitted(step, t, t1, cpu, scheduled, total, tokens)

    def _repeated(self, step: int, t: int, t1: int, cpu: int) -> None:
        self.steps.emitted(step, t, t1, cpu, *self.usual)

    def _placed(self, notes: Words) -> None:
        t = notes.one()
        self.steps.admitted(notes.listed(), t)

    def _finished(self, notes: Words) -> None:
        t = notes.one()
        self.steps.finished(notes.listed(), t)


def _each(notes: Words) -> Mapping[int, int]:
    count = notes.one()
    return row(notes.some(count), notes.some(count))


def each(requests: Iterable[int], counts: Iterable[int]) -> list[int]:
    """What each of some requests has, as it is noted."""
    handles = list(requests)
    return [len(handles), *handles, *counts]
