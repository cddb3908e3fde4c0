"""A recorded run as the data that costs are fitted to: what each part of a step took, and what was in the step.

All durations are net: garbage collections and waits for a core are taken out, and kept apart. The replay supplies
what a log does not hold: which chunk started where, how much cache a swap moved, how long the oldest context is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.demo.scheduler import SWAP, Plan
from stallbook.predict.policy import Policy
from stallbook.predict.ports import NEVER_RAN
from stallbook.predict.replay import Replay, replay
from stallbook.run import UNKNOWN, Ints, Run
from stallbook.timeline import path_pauses

__all__ = ["Observed", "Table", "named", "observe", "origin_of", "wakes"]

Floats = npt.NDArray[np.float64]
Table = dict[str, Ints]

COLUMNS: Final = {
    "decode": ("step", "rows", "padded", "graph", "kv", "extra_kv", "since"),
    "prefill": ("step", "start", "tokens"),
    "swap": ("step", "tokens", "back"),
}
"""extra_kv: the cache that padded rows read again, which is the oldest row's. back: 1 where a cache comes back.

since: how many steps ago a prompt last ran; 0 where one ran in this step.
"""


@dataclass
class Observed:
    """Tables of parts. Every one has `ns` (net), `t` (its start) and `delay` beside what `COLUMNS` says.

    sched, close: what of a step lies in no named part, before and after its emission. output: the segments of that
    name. tok: ns of each request's own, -1 where it was not on the loop.
    """

    run: Run
    replay: Replay
    tables: dict[str, Table] = field(default_factory=dict)
    tok: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    origin: int = 0


def origin_of(run: Run) -> int:
    """The start of a run as its log has it: the first stamp of a step or an arrival."""
    known = run.requests.arrive[run.requests.arrive != UNKNOWN]
    return int(min([*known[:1], *run.steps.t0[:1]], default=0))


def named(run: Run, name: str) -> npt.NDArray[np.bool_]:
    """Which segments of a run have this name."""
    return np.asarray(run.segments.name == (run.names.index(name) if name in run.names else -1))


def wakes(run: Run) -> Ints:
    """How late an idle engine set to work: ns from the arrival that ended each sleep to the tokenizing of its prompt.

    None where prompts are tokenized elsewhere: what its next step waited for is the tokenizer.
    """
    r, steps, s = run.requests, run.steps, run.segments
    begun = np.full(len(steps.t0), UNKNOWN)
    own = np.flatnonzero(named(run, "tok") & (s.step >= 0))[::-1]
    begun[s.step[own]] = s.t0[own]  # of several in a step the first, which comes last here
    arrive = np.sort(r.arrive[r.arrive != UNKNOWN])
    finish = np.sort(r.finish[r.finish != UNKNOWN])
    ended = steps.t1[:-1]
    came = np.searchsorted(arrive, ended, side="right")
    idle = np.flatnonzero((came == np.searchsorted(finish, ended, side="right")) & (came < len(arrive)))
    begun = begun[1:][idle]
    late = begun - arrive[came[idle]]
    return np.asarray(late[(begun != UNKNOWN) & (late > 0)])


def observe(run: Run, policy: Policy) -> Observed:
    """Replay a run and measure its parts."""
    found = Replay()
    rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in COLUMNS}
    prompt = -NEVER_RAN
    for at in replay(run, policy, found):
        prompt = at.row if at.plan.chunks else prompt
        _note(rows, at.row, at.plan, at.row - prompt)
    whole = Observed(run, found, origin=origin_of(run))
    parts = _Parts(run)
    for name, columns in COLUMNS.items():
        table = np.array(rows[name], np.int64).reshape(-1, len(columns)).T
        whole.tables[name] = dict(zip(columns, table, strict=True)) | parts.of(name, table[0])
    whole.tables |= parts.rest()
    tok = np.full(len(run.requests.names), -1)
    own = named(run, "tok")
    tok[run.segments.request[own]] = parts.net[own]
    whole.tok = tok
    return whole


def _note(rows: dict[str, list[tuple[int, ...]]], row: int, step: Plan, since: int) -> None:
    if step.decodes:
        n, oldest = len(step.decodes), step.decodes[0].computed + 1
        kv = sum(seq.computed for seq in step.decodes) + n
        extra = (step.padded - n) * oldest if step.padded > n else 0
        rows["decode"].append((row, n, max(step.padded, n), step.graph, kv, extra, since))
    for chunk in step.chunks:
        rows["prefill"].append((row, chunk.start, chunk.tokens))
    rows["swap"] += [(row, seq.computed, 1) for seq in step.readmit]
    rows["swap"] += [(row, item.seq.computed, 0) for item in step.evict if item.mode == SWAP]


class _Parts:
    """The segments of a run, net."""

    def __init__(self, run: Run) -> None:
        self.run = run
        s = run.segments
        self._p0, self._p1 = path_pauses(run)
        self._sum = np.concatenate([[0], np.cumsum(self._p1 - self._p0)])
        self.delay = np.maximum(s.run_delay, 0)
        self.net = np.maximum(s.t1 - s.t0 - self.paused(s.t0, s.t1) - self.delay, 0)

    def paused(self, t0: Ints, t1: Ints) -> Ints:
        """Time of pauses in windows."""
        return self._upto(t1) - self._upto(t0)

    def _upto(self, t: Ints) -> Ints:
        before = np.searchsorted(self._p0, t, side="right")
        last = np.maximum(before - 1, 0)
        if not len(self._p0):
            return np.zeros_like(t)
        inside = np.where(before > 0, np.minimum(t, self._p1[last]) - self._p0[last], 0)
        return np.where(before > 0, self._sum[last] + inside, 0)

    def of(self, name: str, steps: Ints) -> Table:
        """Net time of the k-th part of a name in a step, for the k-th row of that step; a step's parts in order."""
        s = self.run.segments
        at = np.flatnonzero(named(self.run, name))
        at = at[np.lexsort((s.t0[at], s.step[at]))]
        mine = np.isin(steps, s.step[at])
        if len(at) != int(mine.sum()) or (s.step[at] != steps[mine]).any():
            counts = np.bincount(s.step[at], minlength=len(self.run.steps.id))
            wanted = np.bincount(steps, minlength=len(self.run.steps.id))
            good = counts == wanted
            at, mine = at[good[s.step[at]]], good[steps] & (wanted[steps] > 0)
        ns, t, delay = np.full(len(steps), -1), np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64)
        ns[mine], t[mine], delay[mine] = self.net[at], s.t0[at], self.delay[at]
        return {"ns": ns, "t": t, "delay": delay}

    def rest(self) -> dict[str, Table]:
        """Output, and what is left of each step before and after its emission."""
        run, s = self.run, self.run.segments
        n = len(run.steps.id)
        emit = np.where(run.steps.emit == UNKNOWN, run.steps.t1, run.steps.emit)
        parts = {name: named(run, name) for name in ("tok", "swap", "prefill", "decode", "output", "probe")}
        before = emit - run.steps.t0 - self.paused(run.steps.t0, emit)
        after = run.steps.t1 - emit - self.paused(emit, run.steps.t1)
        output = np.zeros(n, np.int64)
        for name, at in parts.items():
            ns = np.bincount(s.step[at], self.net[at] + self.delay[at], n).astype(np.int64)
            if name == "output":
                after -= ns
                output = np.bincount(s.step[at], self.net[at], n).astype(np.int64)
            else:
                before -= ns
        other = ~np.logical_or.reduce(list(parts.values()))
        waits = np.bincount(s.step[other], self.delay[other], n).astype(np.int64)
        step = np.arange(n)
        blank = np.zeros(n, np.int64)
        base: Table = {"step": step, "t": run.steps.t0, "delay": blank}
        return {
            "sched": base | {"ns": np.maximum(before - waits // 2, 0)},
            "close": base | {"ns": np.maximum(after - (waits - waits // 2), 0)},
            "output": base | {"ns": output},
        }
