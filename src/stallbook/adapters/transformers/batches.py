"""What the hooks saw, some steps at a time: who was in each batch, who decodes, who came, went, and was sent away."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, Final

from stallbook.adapters.device import Track
from stallbook.adapters.steps import Steps
from stallbook.adapters.transformers import requests
from stallbook.adapters.transformers.frontend import Frontend

__all__ = ["EMITTED", "SCHEDULED", "Batches"]

SCHEDULED: Final = "scheduled"
EMITTED: Final = "emitted"
_KV, _SEQS, _BUDGET = 1, 2, 3


class Batches:
    """The batches of one manager, the `session`th of this process. Runs on its generation thread.

    admitted: requests that are alive and were given a place. running: those of them that got a token since.
    """

    def __init__(self, steps: Steps, frontend: Frontend, processor: Any, session: int) -> None:
        self.steps, self.frontend, self.session = steps, frontend, session
        self.handles, self.clock = frontend.process.handles, frontend.clock
        self.scheduler, self.budget = processor.scheduler, processor.max_batch_tokens
        self.full = False
        self.admitted: set[str] = set()
        self.running: set[str] = set()
        self.plan = self._latest = requests.Plan([])
        self._flying: deque[tuple[list[Any], int, requests.Plan]] = deque()

    # Where a batch is made and comes back: while it is in the cache.

    def takes_off(self, batch: list[Any], step: int) -> requests.Plan:
        """Who is in a batch that was scheduled as that step."""
        plan = self._latest
        if not plan.again(batch):
            plan = self._latest = requests.Plan(batch)
        self._flying.append((batch, step, plan))
        return plan

    def lands(self, batch: list[Any]) -> tuple[int, requests.Plan]:
        """A batch's step and who is in it; 0 if it is none of ours. Those that were scheduled before never emit."""
        flying = self._flying
        while flying:
            one, step, plan = flying.popleft()
            if one is batch:
                return step, plan
        return 0, self._latest

    # Some steps at a time.

    def work(self, entries: list[Any]) -> None:
        """Write what the hooks saw."""
        steps = self.steps
        steps.begin()
        for kind, *entry in entries:
            if kind == SCHEDULED:
                self._was_scheduled(steps, *entry)
            elif kind == EMITTED:
                self._was_emitted(steps, *entry)
            elif kind == requests.EVICTED:
                self._evicted(steps, *entry)
            elif kind == requests.ARRIVED:
                request, prompt, limit, made = entry
                steps.another(request)
                self.frontend.arrived(request, prompt, limit, made, self.session)
            else:
                self._finished(steps, *entry)
        steps.write(self.clock(), self._blocked())
        self.frontend.write()

    def _blocked(self) -> int:
        """What keeps the first waiting request out."""
        scheduler = self.scheduler
        if not scheduler.waiting_requests:
            return 0
        if self.full:
            return _BUDGET
        return _SEQS if len(scheduler.active_requests) >= scheduler.max_requests_per_batch else _KV

    def _was_scheduled(
        self, steps: Steps, plan: requests.Plan, step: int, t0: int, t1: int, track: Track | None, windows: list[bytes]
    ) -> None:  # fmt: skip
        steps.scheduled(step, t0, t1, track, windows=windows)
        if plan is not self.plan:
            self.plan = plan
            scheduled, total, _ = plan.told
            self.full = total >= self.budget
            if not scheduled.keys() <= self.admitted:
                self._admitted(steps, plan, t1)

    def _admitted(self, steps: Steps, plan: requests.Plan, t: int) -> None:
        new = [state for state in plan.states if state.request_id not in self.admitted]
        for state in new:
            if state.request_id not in self.handles:  # another answer to a prompt, which had no arrival
                self.frontend.arrived(*requests.told(state), self.session)
        steps.admitted([state.request_id for state in new], t)
        self.admitted.update(state.request_id for state in new)

    def _was_emitted(
        self, steps: Steps, step: int, plan: requests.Plan, t: int, without: Collection[str], t1: int, cpu: int,
        ended: list[str],
    ) -> None:  # fmt: skip
        scheduled, total, tokens = plan.told
        if without:
            tokens = {request: 1 for request in tokens if request not in without}
        decoding = -1
        if scheduled.keys() != steps.batch.keys():  # one that sat out a step decodes when it is back
            fresh = scheduled.keys() - self.running
            decoding = total - sum(scheduled[request] for request in fresh)
            self.running.update(tokens)
        steps.emitted(step, t, t1, cpu, scheduled, total, tokens, decoding)
        if ended:
            self._finished(steps, ended, t1)

    def _evicted(self, steps: Steps, request: str, lost: int, t: int, recompute: bool) -> None:
        self.admitted.discard(request)
        if recompute:
            self.running.discard(request)
        steps.evict(request, lost, t, recompute)

    def _finished(self, steps: Steps, ended: list[str], t: int) -> None:
        self.admitted.difference_update(ended)
        self.running.difference_update(ended)
        self.frontend.gone(ended)
        steps.finished(ended, t)
