"""What the hooks of transformers' generation thread noted: who was in each batch, who decodes, who came, went, and was
sent away, and what was handed out.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import Any

from stallbook.notes.callbacks import Callbacks
from stallbook.notes.steps import Emission, Steps
from stallbook.notes.words import BY_BUDGET, OWN, Told, Words, row, settings_of

__all__ = [
    "AGAIN", "DELIVERED", "EMITTED", "EVICTED", "FINISHED", "HANDED", "HANDED_REST", "NAMES", "PLAN", "RENEWED",
    "ROUTED", "SCHEDULED", "Teller",
]  # fmt: skip

NAMES = ("loop", "sched", "output", "runner")
RENEWED, PLAN, SCHEDULED, EMITTED, EVICTED, FINISHED, DELIVERED, AGAIN, ROUTED, HANDED, HANDED_REST = range(
    OWN, OWN + 11
)
"""Another manager's thread begins: the tokens that its batches may take.
Who is in the batches from here on: how many, their handles, how many tokens each has, and whether it gets a new one.
A step was scheduled: number, start, end.
A step emitted: number, when, end, CPU time; how many, and who, of those in it is not in it any more.
A request lost its cache: handle, tokens, when, whether they are computed again.
Requests are done: when, how many, their handles.
Tokens were handed out: when; how many requests, their handles, how many tokens each.
The same once more: when.
A request's tokens go to a callback: handle, and whether each does as it comes, or all once it is done.
The tokens of a step that go to callbacks were handed out: when, number.
Of a request that failed those that were not handed out before were: when, handle.
"""


class Teller(Told):
    """Follows the batches of one process's managers.

    admitted: requests that are alive and were given a place. running: those of them that got a token since.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        records = settings_of(settings)
        super().__init__(records, Steps(records, False, "runner"))
        self.callbacks = Callbacks(records)
        self.kinds |= {
            RENEWED: (1, self._renewed), PLAN: (-1, self._plan), SCHEDULED: (3, self._scheduled),
            EMITTED: (-1, self._emitted), EVICTED: (4, self._evicted), FINISHED: (-1, self._finished),
            DELIVERED: (-1, self._delivered), AGAIN: (1, records.delivered_again),
            ROUTED: (2, self.callbacks.has), HANDED: (2, self.callbacks.handed), HANDED_REST: (2, self.callbacks.rest),
        }  # fmt: skip
        self.budget = 0
        self.full = False
        self.admitted: set[int] = set()
        self.running: set[int] = set()
        self.plan = Emission({}, 0, {})
        self.fresh = False
        """Whether no step was scheduled of the plan yet."""
        self.plans: dict[int, Emission] = {}
        """Of the steps that have not emitted."""

    def lost(self) -> None:
        """Some notes could not be told."""
        super().lost()
        self.plans.clear()
        self.callbacks.lost()

    def blocked(self, code: int) -> int:
        """Unless nobody waits, the last batch's tokens may have been all that there are."""
        return BY_BUDGET if code and self.full else code

    def _renewed(self, budget: int) -> None:
        self.steps.renew()
        self.budget, self.full = budget, False
        for known in (self.admitted, self.running, self.plans):
            known.clear()
        self.callbacks.renew()

    def _plan(self, notes: Words) -> None:
        count = notes.one()
        requests, lengths, new = (notes.some(count) for _ in range(3))
        scheduled = row(requests, lengths)
        self.plan = Emission(scheduled, sum(lengths), dict.fromkeys(compress(scheduled, new), 1))
        self.fresh = True

    def _scheduled(self, step: int, t0: int, t1: int) -> None:
        self.steps.scheduled(step, t0, t1)
        plan = self.plans[step] = self.plan
        if self.fresh:
            self.fresh, self.full = False, plan.total >= self.budget
            new = [one for one in plan.scheduled if one not in self.admitted]
            self.steps.admitted(new, t1)
            self.admitted.update(new)

    def _emitted(self, notes: Words) -> None:
        step, t, t1, cpu = notes.some(4)
        without = set(notes.listed())
        plan = self.plans.pop(step, None)
        for old in [one for one in self.plans if one < step]:
            del self.plans[old]
        if plan is None:
            return
        scheduled, total, tokens = plan
        if without:
            tokens = {request: 1 for request in tokens if request not in without}
        decoding = -1
        if scheduled.keys() != self.steps.batch:  # one that sat out a step decodes when it is back
            fresh = scheduled.keys() - self.running
            decoding = total - sum(scheduled[request] for request in fresh)
            self.running.update(tokens)
        self.steps.emitted(step, t, t1, cpu, scheduled, total, tokens, decoding)
        self.callbacks.emitted(step, t1, tokens)

    def _evicted(self, request: int, lost: int, t: int, recompute: int) -> None:
        self.admitted.discard(request)
        if recompute:
            self.running.discard(request)
        self.steps.evict(request, lost, t, bool(recompute))

    def _finished(self, notes: Words) -> None:
        t, ended = notes.one(), notes.listed()
        self.admitted.difference_update(ended)
        self.running.difference_update(ended)
        self.steps.finished(ended, t)
        self.callbacks.finished(ended, t)

    def _delivered(self, notes: Words) -> None:
        t, count = notes.some(2)
        self.callbacks.others()
        self.records.delivered(notes.some(count), notes.some(count), t)
