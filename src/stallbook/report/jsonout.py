"""The report as JSON. The keys are a contract: they are added to, never renamed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from stallbook.abilities import PLACED
from stallbook.report.model import RunReport
from stallbook.report.stalled import rules_out
from stallbook.report.summary import Delivered, Summary
from stallbook.stalls import Stall
from stallbook.tally import Bin, Mix

__all__ = ["VERSION", "document", "dumps", "finite", "run_object"]

VERSION: Final = 1
NO_UPPER_EDGE: Final = 1e9
"""Stands for the missing upper edge of the last bin, so that every edge is a number."""


def dumps(reports: Iterable[RunReport]) -> str:
    """The document as indented text. Not a number is null: JSON has no other word for it."""
    return json.dumps(document(reports), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def document(reports: Iterable[RunReport]) -> dict[str, Any]:
    """The document: a version and one object a run."""
    return {"stallbook": VERSION, "runs": [run_object(report) for report in reports]}


def run_object(r: RunReport) -> dict[str, Any]:
    """One run. What the log did not record is null, never 0."""
    counted = r.counters
    shape: dict[str, Any] = {
        "run": {"path": r.path, "engine": r.engine, "boundary": r.boundary, "config": dict(r.config)},
        "rules": r.rules,
        "requests": counted.requests,
        "tokens": counted.tokens,
        "gaps": r.gaps,
        "wall_s": counted.wall_s,
        "tokens_per_s": counted.tokens_per_s,
        "itl_ms": vars(r.itl),
        "itl_series": _series(r),
        "stalls": _stalls(r),
        "ttft_ms": {"p50": r.ttft.p50, "p99": r.ttft.p99},
        "ttft": _first_tokens(r),
        "tail": {
            "threshold_ms": r.tail_threshold_ms,
            "gaps": r.tail.gaps,
            **_mix(r.tail, r),
        },
        "all": _mix(r.all, r),
        "forward_share": {"clean_median": r.forward_clean, "tail_median": r.forward_tail},
        "histogram": [_bin(one) for one in r.histogram],
        "boundaries": {name: _boundary(told, r) for name, told in r.beyond.items()},
        "context_ms": r.context_ms | ({} if r.hidden_ms is None else {"hidden": r.hidden_ms}),
        "prompts_ms": r.prompts_ms,
        "ceiling_ms": {cause: {"p99": c.p99, "p999": c.p999} for cause, c in r.ceiling.items()},
        "reconcile": {**vars(r.reconcile)},
        "counters": _counters(r),
        "baseline": r.baseline,
        "abilities": r.abilities,
        "totals_ms": {c: ns / 1e6 for c, ns in r.rough.totals.items() if r.abilities.get(c, PLACED) != PLACED},
        "hints": {c: words for c, words in r.rough.hints.items() if r.abilities.get(c, PLACED) != PLACED},
        "machine": _machine(r),
        "notes": r.notes,
        "warnings": r.warnings,
        "facts": dict(r.facts),
    }
    return {key: finite(value) for key, value in shape.items()}


def _series(r: RunReport) -> dict[str, Any]:
    """Where every gap ends with one token, all three are the same."""
    told = r.series
    return {
        "attributed": "per emission",
        "several": told.several if told else 0,
        "zero_filled_ms": vars(told.zero_filled if told else r.itl),
        "divided_ms": vars(told.divided if told else r.itl),
    }


def _stalls(r: RunReport) -> dict[str, Any]:
    s = r.stalls
    return {
        "threshold_ms": s.threshold_ns / 1e6,
        "count": s.count,
        "stalled_s": s.stalled_ns / 1e9,
        "share": s.share,
        "max_ms": s.max_ns / 1e6 if r.gaps else None,
        "worst": [_stall(one) for one in s.worst],
    }


def _stall(s: Stall) -> dict[str, Any]:
    return {
        "request": s.request,
        "start_s": s.start_ns / 1e9,
        "length_ms": s.length_ns / 1e6,
        "streams": s.streams,
        "primary": s.primary,
        "parts_ms": {cause: ns / 1e6 for cause, ns in s.parts_ns.items()},
        "live": s.live,
        "stopped": s.stopped,
        "scope": s.scope,
        "rules_out": rules_out(s),
    }


def _first_tokens(r: RunReport) -> dict[str, Any] | None:
    if r.first is None:
        return None
    return {
        **_waits(r.first.waits, "waits", r),
        "waits": r.first.waits.all.gaps,
        "mean_ms": _recorded(r.first.waits.mean_ms, r),
        "never_admitted": r.first.never_admitted,
        "blocked_ms": r.first.blocked_ms,
        "held_share": r.first.held,
    }


def _boundary(told: Delivered, r: RunReport) -> dict[str, Any]:
    after = told.after
    return {
        "gaps": told.gaps.all.gaps,
        "itl_ms": vars(told.gaps.times),
        **_waits(told.gaps, "gaps", r),
        "after_emission": after
        and {"gaps": after.gaps, "tail_gaps": after.tail_gaps, "longest_ms": after.longest_ns / 1e6},
        "unmatched": told.unmatched,
        "empty": told.empty,
    }


def _waits(of: Summary, noun: str, r: RunReport) -> dict[str, Any]:
    """All and the tail by cause; `noun` is what the tail's number is called."""
    return {
        **_mix(of.all, r),
        "tail": {"threshold_ms": of.threshold_ms, noun: of.tail.gaps, **_mix(of.tail, r)},
        "reconcile": {"max_error_ns": of.max_error_ns, "negative_parts": of.negative_parts},
    }


def _mix(of: Mix, r: RunReport) -> dict[str, Any]:
    """Time and gaps by cause. A cause that has none because the log cannot place it is null."""
    return {"share": _recorded(of.share, r), "count": _recorded(of.primary, r)}


def _recorded(values: Mapping[str, Any], r: RunReport) -> dict[str, Any]:
    return {cause: None if cause in r.unplaced and not value else value for cause, value in values.items()}


def _bin(one: Bin) -> dict[str, Any]:
    high = one.high_ms if math.isfinite(one.high_ms) else NO_UPPER_EDGE
    return {"low_ms": one.low_ms, "high_ms": high, "gaps": one.gaps, "primary": one.primary}


def _counters(r: RunReport) -> dict[str, Any]:
    c = r.counters
    gc = c.collections
    return {
        "preemptions": c.preemptions,
        "eager_steps": c.eager_steps,
        "max_decode_batch": c.max_decode_batch,
        "gc": gc.by_generation if gc else dict.fromkeys(("0", "1", "2")),
        "gen2_serving_ms": gc.gen2_serving_ms if gc else None,
        "gen2_startup_ms": gc.gen2_startup_ms if gc else None,
    }


def _machine(r: RunReport) -> dict[str, Any] | None:
    s = r.speed
    if s is None:
        return None
    return {
        "probes": s.samples,
        "median_ns": s.median_ns,
        "spread": s.spread,
        "drift": s.drift,
        "moved": s.moved,
        "thirds_ns": s.thirds_ns,
        "held_still": s.held_still,
    }


def finite(value: Any) -> Any:
    """Replace infinities and not-a-numbers by null, all the way down."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
