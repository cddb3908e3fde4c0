"""The partition written the slow and obvious way: cut the time axis at every stamp, ask the rules of each window.

It shares no code with `stallbook` and reads the interchange format directly, so that the fast partition has
something independent to be held against. Time is integers, everything else `Fraction`. It assumes a log
without contradictions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any

from slow_cost import Baseline, cost_function
from slow_log import NEVER, Log, Segment, Step

ORDER = ["prefill", "preempt", "graph", "gc", "tok", "fwd", "residual", "os", "slow", "unscheduled", "pad"]
ORDER += ["sched", "sample", "output", "frontend", "network", "queue"]
POST_NAMES = {"tok", "swap", "prefill", "decode"}
OWN_NAMES = {"tok": "tok", "swap": "preempt", "prefill": "prefill"} | {x: x for x in ("sched", "sample", "output")}
CARVED = ("os", "graph", "slow", "pad", "prefill")
MS = 1_000_000

Parts = dict[str, int]


@dataclass
class SlowGap:
    """One gap and where its time went. `context`: per owner of rules 1 to 3, what the engine did meanwhile."""

    request: str
    step_from: int
    step_to: int
    t0: int
    t1: int
    tokens: int
    parts: Parts
    primary: str
    context: dict[str, Parts] = field(default_factory=dict)
    skipped: int = 0

    def whole_context(self) -> Parts:
        total: Parts = defaultdict(int)
        for parts in self.context.values():
            for cause, ns in parts.items():
                total[cause] += ns
        return dict(total)


def partition(events: list[dict[str, Any]], rules: str = "full", baseline: Baseline = None) -> list[SlowGap]:
    """Every gap of a log, by request (in the order they emit) and step."""
    return Slow(Log(events), rules, baseline).gaps()


def primary_of(parts: Mapping[str, int], length: int) -> str:
    """Section 4."""
    able = {cause: ns for cause, ns in parts.items() if cause not in ("fwd", "pad", "residual")}
    if not able:
        return "clean"
    best = min(able, key=lambda cause: (-able[cause], place(cause)))
    return best if able[best] >= MS and 4 * able[best] >= length else "clean"


def place(cause: str) -> tuple[int, str]:
    """Where a cause stands in section 2's order."""
    return (ORDER.index(cause), "") if cause in ORDER else (len(ORDER), cause)


class Slow:
    """One log under one set of rules."""

    def __init__(self, log: Log, rules: str, baseline: Baseline = None) -> None:
        self.log, self.post = log, rules == "post"
        known = [s for s in log.segments if s.t0 < s.t1]
        if self.post:
            known = [s for s in known if not s.device and s.name in POST_NAMES]
        self.segments = known
        self.stamps = [emit.t for emit in log.emits]
        self.cuts = sorted(log.stamps)
        self.windows: list[tuple[int, int]] = list(pairwise(self.cuts))
        self.base = [self.engine_at(t) for t, _ in self.windows]
        self.nets = self.all_nets()
        self.os = {s: 0 if self.post else self.run_delay(s) for s in self.segments}
        self.of_step: dict[int, list[Segment]] = defaultdict(list)
        for s in self.segments:
            self.of_step[s.step].append(s)
        self.cost = cost_function(log, baseline, self.captured_work if self.post else None)
        self.amount: dict[Any, list[Parts]] = {}  # unit -> the carved labels of each of its windows
        for unit in {self.unit(s) for s in self.segments}:
            self.amount[unit] = self.spread(unit)

    # --- who owns an instant -------------------------------------------------------------------------------------

    def interval_at(self, t: int) -> int:
        """Index of the emitting step in whose interval `t` lies; past the last emission, one past the end."""
        return bisect_right(self.stamps, t)

    def engine_at(self, t: int) -> Segment | str:
        """Rules 4 to 7: what the engine did at `t`, whoever asks."""
        i = self.interval_at(t)
        last_step = self.log.emits[i].step if i < len(self.stamps) else NEVER
        device = [s for s in self.segments if s.device and s.t0 <= t < s.t1 and s.step <= last_step]
        if device:  # rule 4
            return innermost(device)
        if any(a <= t < b for a, b in self.log.pauses):  # rule 5
            return "gc"
        host = [s for s in self.segments if not s.device and s.t0 <= t < s.t1]
        return innermost(host) if host else "residual"  # rules 6 and 7

    def request_at(self, request: str, t: int, p: int, s: int) -> str | None:
        """Rules 1 to 3: why `request` was not served at `t`, if so. `p` and `s`: the emits around it, by index."""
        if any(a <= t < b for a, b in self.log.evicted[request]):
            return "preempt"
        if self.post:
            return None
        holds = [(a, kind) for a, b, kind in self.log.held[request] if a <= t < b]
        if holds:
            return "other:" + min(holds)[1]
        q = self.interval_at(t)
        return "unscheduled" if p < q < s and self.left_out(request, q) else None

    def left_out(self, request: str, q: int) -> bool:
        """Rule 3 for the interval of emitting step `q`."""
        return self.absent(request, q) and not self.away(request, q)

    def absent(self, request: str, q: int) -> bool:
        """Did emitting step `q` decode others, and the log says that the request was not in its batch?"""
        step = self.log.steps[self.log.emits[q].step]
        return not self.post and step.decode_tokens > 0 and step.members is not None and request not in step.members

    def away(self, request: str, q: int) -> bool:
        """Is the request evicted or held at any instant of the interval of emitting step `q`?"""
        low = self.stamps[q - 1] if q else -NEVER
        windows = list(self.log.evicted[request])
        if not self.post:
            windows += [(a, b) for a, b, _ in self.log.held[request]]
        return any(a < self.stamps[q] and low < b for a, b in windows)

    # --- 3.1: what a segment's time is called --------------------------------------------------------------------

    def all_nets(self) -> dict[Segment, list[int]]:
        """The windows that make up each segment's net."""
        nets: dict[Segment, list[int]] = {s: [] for s in self.segments}
        for w, (t, _) in enumerate(self.windows):
            owner = self.base[w]
            if isinstance(owner, Segment) and not owner.device:
                nets[owner].append(w)
            busy = [s for s in self.segments if s.device and s.t0 <= t < s.t1]
            for step in {s.step for s in busy}:
                nets[innermost(s for s in busy if s.step == step)].append(w)
        return nets

    def length(self, w: int) -> int:
        t0, t1 = self.windows[w]
        return t1 - t0

    def net(self, s: Segment) -> int:
        return sum(self.length(w) for w in self.nets[s])

    def run_delay(self, s: Segment) -> int:
        """`os` of a host segment: its own run delay, or its share of the step's total."""
        if s.device:
            return 0
        step, net = self.log.steps[s.step], self.net(s)
        if step.segments_have_delay:
            return min(s.run_delay or 0, net)
        window = step.t1 - step.t0
        if step.run_delay is None or window == 0:
            return 0
        return min(step.run_delay, window) * net // window

    def unit(self, s: Segment) -> Any:
        """Decode is split once a step; every other segment is split alone."""
        return s.step if s.name == "decode" else s

    def parts_of(self, unit: Any) -> list[Segment]:
        return [unit] if isinstance(unit, Segment) else [s for s in self.of_step[unit] if s.name == "decode"]

    def work(self, step: int) -> int:
        """M: the step's decode time without `os`."""
        return sum(self.net(s) - self.os[s] for s in self.parts_of(step))

    def decode_amounts(self, step_id: int) -> dict[str, Fraction]:
        """The table of 3.1: how much of M is not `fwd`."""
        step, m = self.log.steps[step_id], self.work(step_id)
        n = step.decode_tokens
        p = n if step.padded is None or step.graph == "none" else step.padded
        b_n, b_p = self.costs(step, n, p)
        if n < 0:  # nobody counted the rows: nothing can be told apart
            return {}
        if step.mixed and not self.post:
            if n == 0:
                return {"prefill": Fraction(m)}
            if b_p == 0:
                return {"prefill": Fraction(m * step.prefill_tokens, n + step.prefill_tokens)}
            return {"prefill": Fraction(m - min(b_n, m))}
        if b_p == 0:
            return {}
        if step.graph == "eager":
            return {"graph": Fraction(m - min(b_n, m))}
        if self.post:
            return {}
        if m < 2 * b_p:
            return {"pad": (b_p - b_n) * min(Fraction(1), Fraction(m, b_p))}
        return {"pad": Fraction(b_p - b_n), "slow": Fraction(m - b_p)}

    def captured_work(self) -> list[tuple[int, int]]:
        """What the post fits its line to: padded size and decode time of every captured step."""
        captured = [step for step in self.log.steps.values() if step.graph == "captured"]
        return [(s.decode_tokens if s.padded is None else s.padded, self.work(s.id)) for s in captured]

    def costs(self, step: Step, n: int, p: int) -> tuple[int, int]:
        """B(n) and B(P), with the edges; (0, 0) where the step has no baseline."""
        at_n, at_p = self.cost(step, n), self.cost(step, p)
        if at_n is None or at_p is None:
            return 0, 0
        b_p = max(0, floor(at_p))
        return min(max(0, floor(at_n)), b_p), b_p

    def spread(self, unit: Any) -> list[Parts]:
        """Cumulative amounts, floored, as differences: what each window of a unit's net gets of each carved label."""
        segments = self.parts_of(unit)
        pieces = sorted((w, s.device, s) for s in segments for w in self.nets[s])
        amounts = {} if isinstance(unit, Segment) else self.decode_amounts(unit)
        m = 0 if isinstance(unit, Segment) else self.work(unit)
        out, before, done, delay = [], dict.fromkeys(CARVED, 0), 0, Fraction(0)
        for w, _, s in pieces:
            done += self.length(w)
            delay += Fraction(self.os[s] * self.length(w), self.net(s))
            now = {k: floor(amounts.get(k, 0) * (done - delay) / m) if m else 0 for k in CARVED}
            now["os"] = floor(delay)
            out.append({"window": w, "device": int(s.device)} | {k: now[k] - before[k] for k in CARVED})
            before = now
        return out

    def rest_label(self, unit: Any) -> str:
        """Who gets what the carved labels leave."""
        if isinstance(unit, Segment):
            return OWN_NAMES.get(unit.name, "other:" + unit.name)
        amounts = self.decode_amounts(unit)
        amounts["os"] = Fraction(sum(self.os[s] for s in self.parts_of(unit)))
        some = [k for k in CARVED if amounts.get(k)]
        return "fwd" if not some or sum(amounts.values()) < sum(map(self.net, self.parts_of(unit))) else some[-1]

    # --- gaps ----------------------------------------------------------------------------------------------------

    def charge(
        self, request: str, t0: int, t1: int, p: int, s: int, whole_tok: bool = False
    ) -> dict[str | None, Parts]:
        """Parts of [t0, t1) (under None) and the context of each owner of rules 1 to 3."""
        out: dict[str | None, Parts] = defaultdict(lambda: defaultdict(int))
        pieces: dict[tuple[str | None, int, Any], list[int]] = defaultdict(list)
        for w in range(bisect_left(self.cuts, t0), bisect_left(self.cuts, t1)):
            t, base = self.windows[w][0], self.base[w]
            owner = self.request_at(request, t, p, s)
            if owner is not None:
                out[None][owner] += self.length(w)
            if not isinstance(base, Segment):
                out[owner][base] += self.length(w)
            elif whole_tok and base.name == "tok" and base.request == request:
                out[owner]["tok"] += self.length(w)
            else:
                pieces[owner, self.interval_at(t), self.unit(base)].append(w)
        for (owner, _, unit), windows in pieces.items():
            self.charge_piece(unit, windows, out[owner])
        return out

    def charge_piece(self, unit: Any, windows: Iterable[int], parts: Parts) -> None:
        mine = {(w, int(isinstance(b, Segment) and b.device)) for w in windows for b in (self.base[w],)}
        left = sum(self.length(w) for w, _ in mine)
        rows = [row for row in self.amount[unit] if (row["window"], row["device"]) in mine]
        for cause in CARVED:
            ns = min(left, sum(row[cause] for row in rows))
            parts[cause] += ns
            left -= ns
        parts[self.rest_label(unit)] += left

    def gaps(self) -> list[SlowGap]:
        out = []
        for request, emits in self.log.emits_of.items():
            for (p, _), (s, tokens) in pairwise(emits):
                t0, t1 = self.stamps[p], self.stamps[s]
                charged = {
                    k: {c: ns for c, ns in v.items() if ns} for k, v in self.charge(request, t0, t1, p, s).items()
                }
                parts = charged.pop(None, {})
                skipped = [q for q in range(p + 1, s) if not self.absent(request, q)]
                if t0 < t1:  # a gap of no length holds no part of an eviction
                    skipped = [q for q in skipped if not self.away(request, q)]
                steps = self.log.emits[p].step, self.log.emits[s].step
                primary = primary_of(parts, t1 - t0)
                context = {str(k): v for k, v in charged.items() if v}
                out.append(SlowGap(request, *steps, t0, t1, tokens, parts, primary, context, len(skipped)))
        return out


def innermost(segments: Iterable[Segment]) -> Segment:
    """Rule 6: the oldest step's; of those the one that started last, then the shorter, then by name."""
    return min(segments, key=lambda s: (s.step, -s.t0, s.t1, s.name, s.index))
