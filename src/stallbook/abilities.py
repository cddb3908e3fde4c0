"""What a log was able to record: a cause whose record is missing is "not recorded", which is not 0."""

from __future__ import annotations

from stallbook.causes import OTHER, POST
from stallbook.charges import Charges, segment_cause
from stallbook.run import NO_GRAPH, UNKNOWN, Run

__all__ = ["BOUNDED", "NOT_RECORDED", "PLACED", "abilities"]

PLACED, BOUNDED, NOT_RECORDED = "placed", "bounded", "not recorded"


def abilities(run: Run, rules: str, charges: Charges) -> dict[str, str]:
    """For each cause: "placed", "bounded" (known as a total, so placed only in proportion) or "not recorded"."""

    def placed(recorded: bool) -> str:
        return PLACED if recorded else NOT_RECORDED

    segments = "segments" in run.records or len(run.segments.t0) > 0
    graph = "graph" in run.records or bool((run.steps.graph != NO_GRAPH).any())
    evictions = "evictions" in run.records or len(run.evictions.t0) > 0
    fitted = charges.baseline.method != "none"
    out = dict.fromkeys(POST, placed(segments))
    out["preempt"] = placed(evictions)
    out["graph"] = placed(graph and fitted and segments)
    out["gc"] = placed("gc" in run.records or len(run.pauses.t0) > 0)
    out["residual"] = PLACED
    if rules == "post":
        return out
    own = bool((run.segments.run_delay >= 0).any())
    out["os"] = BOUNDED if charges.from_totals else placed(own or "os" in run.records)
    out["slow"] = placed(fitted and segments)
    out["pad"] = placed(fitted and segments and graph)
    out["unscheduled"] = placed("members" in run.records or bool(run.members.known.any()))
    names = {segment_cause(run.names[i]) for i in set(run.segments.name.tolist())}
    for cause in ("sched", "sample", "output"):
        out[cause] = placed(cause in names)
    out["frontend"] = out["network"] = placed(len(run.deliveries.t) > 0)
    out["queue"] = placed(bool((run.requests.admit != UNKNOWN).any()))
    held = {OTHER + run.names[i] for i in set(run.holds.kind.tolist())}
    return out | dict.fromkeys(sorted({n for n in names if n.startswith(OTHER)} | held), PLACED)
