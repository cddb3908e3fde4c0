"""Replay: the scheduler over a recorded run, step by step. It must plan what the engine did, or nothing here holds.

The log says which requests came in at which step and when each step ran; the policy says what the step does. What it
says is held against the record: rows, prompt tokens, path, padding, KV tokens, who was evicted, who came back, who
emitted, and what kept the first waiting request out.

On the loop, a request comes in at the step that holds its `tok` segment. One that was tokenized elsewhere left no mark
of when it came back. It was there at the step that admitted it and, where the log says what kept requests out, at the
steps right before it in which somebody was. A request that is kept out changes nothing else of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from stallbook.demo.scheduler import RECOMPUTE, RESTART, Plan, Sequence
from stallbook.errors import StallbookError
from stallbook.predict.policy import Policy
from stallbook.run import NEVER, NOT_BLOCKED, UNKNOWN, Ints, Run

__all__ = ["Mismatch", "Replay", "Replayed", "intake_steps", "replay"]

FIELDS = (
    "decode_tokens", "prefill_tokens", "graph", "padded", "kv_tokens", "blocked", "evicted", "readmitted", "emitted",
)  # fmt: skip


@dataclass(frozen=True)
class Mismatch:
    """A step that the policy plans otherwise than it was recorded."""

    step: int
    field: str
    planned: Any
    recorded: Any


@dataclass
class Replay:
    """What a replay found. restarts: running prefills that were dropped, which a log counts but does not place."""

    steps: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    """One a step at most: the first field that differs."""
    evictions: int = 0
    restarts: int = 0
    admissions: int = 0
    readmissions: int = 0

    @property
    def exact(self) -> bool:
        """Whether every step is as recorded."""
        return not self.mismatches


@dataclass(frozen=True)
class Replayed:
    """A step with the plan that the policy made of it, before that plan is committed."""

    row: int
    plan: Plan
    came: tuple[int, ...]
    """The requests that came in with this step."""


def intake_steps(run: Run) -> Ints:
    """The step at which each request came in; -1 for one that never did."""
    came = np.full(len(run.requests.names), -1)
    s = run.segments
    if "tok" in run.names:
        own = (s.name == run.names.index("tok")) & (s.request >= 0)
        came[s.request[own]] = s.step[own]
    admit = run.requests.admit
    late = np.flatnonzero((came < 0) & (admit != UNKNOWN))
    order = late[np.argsort(admit[late], kind="stable")]
    at = np.searchsorted(run.steps.t0, admit[order], side="right") - 1
    open_to_all = np.flatnonzero(run.steps.blocked <= NOT_BLOCKED)  # or not recorded
    last = np.searchsorted(open_to_all, at) - 1
    streak = np.where(last >= 0, open_to_all[last] + 1, 0) if len(open_to_all) else np.zeros_like(at)
    came[order] = np.maximum(streak, np.concatenate([at[:1] * 0, at[:-1]]))
    return came


class _Recorded:
    """What a log says of each step, in the policy's words."""

    def __init__(self, run: Run) -> None:
        steps, events = run.steps, run.evictions
        self.columns = {name: getattr(steps, name).tolist() for name in FIELDS if hasattr(steps, name)}
        self.evicted = self._by_step(steps.t0, events.request, events.t0)
        back = events.t1 < NEVER
        self.readmitted = self._by_step(steps.t0, events.request[back], events.t1[back])
        e = run.emissions
        order = np.argsort(e.step, kind="stable")
        bounds = np.searchsorted(e.step[order], np.arange(len(steps.id) + 1)).tolist()
        who = e.request[order].tolist()
        self.emitted = [who[a:b] for a, b in pairwise(bounds)]
        self.away: set[int] = set()
        """Whose cache was dropped: it comes back with its next chunk."""

    @staticmethod
    def _by_step(t0: Ints, request: Ints, t: Ints) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row, key in zip((np.searchsorted(t0, t, side="right") - 1).tolist(), request.tolist(), strict=True):
            found.setdefault(row, []).append(key)
        return found

    def differs(self, row: int, step: Plan, emitting: Row[Sequence]) -> Mismatch | None:
        """The first field of a plan that is not as recorded."""
        kv = sum(seq.computed + 1 for seq in step.decodes)
        prompt = sum(chunk.tokens for chunk in step.chunks)
        back = {chunk.seq.key for chunk in step.chunks if chunk.seq.key in self.away}
        self.away -= back
        self.away |= {item.seq.key for item in step.evict if item.mode == RECOMPUTE}
        planned: tuple[Any, ...] = (
            len(step.decodes), prompt, step.graph, step.padded, kv, step.blocked,
            sorted(item.seq.key for item in step.evict if item.mode != RESTART),
            sorted({*(seq.key for seq in step.readmit), *back}),
            sorted(seq.key for seq in emitting),
        )  # fmt: skip
        for name, value in zip(FIELDS, planned, strict=True):
            if name in self.columns:
                found: Any = self.columns[name][row]
            else:
                found = sorted(self.emitted[row] if name == "emitted" else getattr(self, name).get(row, []))
            if found != value and not (name in ("kv_tokens", "blocked") and found == -1):
                return Mismatch(row, name, value, found)
        return None


def replay(
    run: Run, policy: Policy, into: Replay | None = None, *, came: Mapping[int, Row[int]] | None = None,
    outputs: Row[int] | None = None,
) -> Iterator[Replayed]:  # fmt: skip
    """Each step of a run with its plan, before it is committed. What differs from the record is noted in `into`.

    came: who came in at each step, in order, if not by `intake_steps`. outputs: how many tokens each request makes.
    """
    found = Replay() if into is None else into
    recorded = _Recorded(run)
    prompts, outputs = run.requests.prompt_tokens.tolist(), _outputs(run) if outputs is None else outputs
    came = _came(run) if came is None else came
    for row in range(len(run.steps.id)):
        new = came.get(row, ())
        for key in new:
            _join(run, policy, Sequence(key, prompts[key], outputs[key]))
        step = policy.plan()
        if (differs := recorded.differs(row, step, policy.emitting(step))) is not None:
            found.mismatches.append(differs)
        _count(found, step)
        yield Replayed(row, step, tuple(new))
        policy.commit(step, 1)


def _came(run: Run) -> dict[int, list[int]]:
    """Who came in at each step, in the order of arrival."""
    came: dict[int, list[int]] = {}
    intake = intake_steps(run)
    for key in np.argsort(run.requests.arrive, kind="stable").tolist():
        came.setdefault(int(intake[key]), []).append(key)
    return came


def _join(run: Run, policy: Policy, seq: Sequence) -> None:
    try:
        policy.add(seq)
    except ValueError as error:
        what = f"request {run.requests.names[seq.key]!r} does not fit its scheduler: {error}"
        raise StallbookError("no-replay", what, "record prompt and output lengths, and the pool", run.path) from None


def _count(found: Replay, step: Plan) -> None:
    found.steps += 1
    found.readmissions += len(step.readmit)
    found.admissions += sum(chunk.admitted for chunk in step.chunks)
    restarts = sum(item.mode == RESTART for item in step.evict)
    found.restarts += restarts
    found.evictions += len(step.evict) - restarts


def _outputs(run: Run) -> list[int]:
    """How many tokens each request makes: what it was told to, else what it made."""
    made = np.bincount(run.emissions.request, run.emissions.tokens, len(run.requests.names)).astype(np.int64)
    known = run.requests.max_tokens > 0
    outputs: list[int] = np.where(known, run.requests.max_tokens, np.maximum(made, 1)).tolist()
    return outputs
