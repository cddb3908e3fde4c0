"""What a log was able to record: a cause whose record is missing is "not recorded", which is not 0.

Some logs know something of a cause that cannot be placed on the time axis: a total, or only that it happened. They say
so in two facts, `totals` ({"gc": ns}) and `hints` ({"gc": "what is known"}); nothing is charged for either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stallbook.causes import ORDER, OTHER, POST
from stallbook.charges import Charges, segment_cause, segment_names
from stallbook.run import NEVER, NO_GRAPH, UNKNOWN, Run

__all__ = ["BOUNDED", "HINTED", "LONGEST_HINT", "NOT_RECORDED", "PLACED", "Rough", "abilities", "rough", "unplaced"]

PLACED, BOUNDED, HINTED, NOT_RECORDED = "placed", "bounded", "hinted", "not recorded"
"""Placed on the time axis; known as a total; known to have happened, or not to; and unknown."""
LONGEST_HINT: Final = 300


@dataclass(frozen=True)
class Rough:
    """What a log knows of causes without being able to place it, by cause.

    totals: ns in the whole run. hints: words. ignored: entries that name no cause, or hold no amount or words.
    """

    totals: dict[str, int]
    hints: dict[str, str]
    ignored: int


def rough(run: Run) -> Rough:
    """The totals and hints that come with a log, and those that its counts amount to."""
    told = {key: run.facts.get(key) for key in ("totals", "hints")}
    given = {key: value if isinstance(value, Mapping) else {} for key, value in told.items()}
    totals = {c: ns for c, ns in given["totals"].items() if _cause(c) and type(ns) is int and 0 <= ns < NEVER}
    hints = {c: w[:LONGEST_HINT] for c, w in given["hints"].items() if _cause(c) and isinstance(w, str) and w}
    ignored = sum(len(given[key]) - len(kept) for key, kept in (("totals", totals), ("hints", hints)))
    ignored += sum(value is not None and not isinstance(value, Mapping) for value in told.values())
    return Rough(totals, _counted(run) | hints, ignored)


def _cause(name: object) -> bool:
    return isinstance(name, str) and (name in ORDER or (name.startswith(OTHER) and len(name) > len(OTHER)))


def _counted(run: Run) -> dict[str, str]:
    """What counts without windows say."""
    out: dict[str, Any] = {}
    if run.preemptions >= 0:
        out["preempt"] = f"the engine counted {run.preemptions:,}"
    told = run.steps.cpu >= 0
    if told.any():
        away = int(np.clip(run.steps.t1 - run.steps.t0 - run.steps.cpu, 0, None)[told].sum())
        out["os"] = f"the engine's thread was off the CPU for {away / 1e6:,.0f} ms of its steps, waiting included"
    return out


def abilities(run: Run, rules: str, charges: Charges, known: Rough) -> dict[str, str]:
    """For each cause: "placed"; "bounded" (known as a total: of a step, and placed in proportion, or of the whole run,
    and not placed); "hinted" (known to have happened, or not to; not placed); or "not recorded".
    """
    out = _recorded(run, rules, charges)
    for cause in (*known.totals, *known.hints):
        if out.get(cause, NOT_RECORDED if rules == "full" else PLACED) == NOT_RECORDED:
            out[cause] = BOUNDED if cause in known.totals else HINTED
    return out


def unplaced(run: Run, found: Mapping[str, str]) -> frozenset[str]:
    """The causes whose part in a gap this log cannot tell: where they have none, that is unknown and not 0."""
    by_step = {"os"} if bool((run.steps.run_delay > 0).any()) else set()
    return frozenset(c for c, told in found.items() if told != PLACED and not (told == BOUNDED and c in by_step))


def _recorded(run: Run, rules: str, charges: Charges) -> dict[str, str]:
    """What the tables of the log can show."""

    def placed(recorded: bool) -> str:
        return PLACED if recorded else NOT_RECORDED

    segments = "segments" in run.records or len(run.segments.t0) > 0
    graph = "graph" in run.records or bool((run.steps.graph != NO_GRAPH).any())
    evictions = "evictions" in run.records or len(run.evictions.t0) > 0
    fitted = charges.based
    used = segment_names(run)
    out = dict.fromkeys(POST, placed(segments))
    out["preempt"] = placed(evictions or "swap" in used)
    out["graph"] = placed(graph and fitted and segments)
    out["gc"] = placed("gc" in run.records or len(run.pauses.t0) > 0)
    out["residual"] = PLACED
    if rules == "post":
        return out
    own = bool((run.segments.run_delay >= 0).any() or (run.steps.run_delay >= 0).any())
    out["os"] = BOUNDED if charges.from_totals else placed(own or "os" in run.records)
    out["slow"] = placed(fitted and segments)
    out["pad"] = placed(fitted and segments and graph)
    out["unscheduled"] = placed("members" in run.records or bool(run.members.known.any()))
    names = {segment_cause(name) for name in used}
    for cause in ("sched", "sample", "output"):
        out[cause] = placed(cause in names)
    out["frontend"] = out["network"] = placed(len(run.deliveries.t) > 0)
    out["queue"] = placed(bool((run.requests.admit != UNKNOWN).any()))
    held = {OTHER + run.names[i] for i in set(run.holds.kind.tolist())}
    return out | dict.fromkeys(sorted({n for n in names if n.startswith(OTHER)} | held), PLACED)
