"""The report as JSON. The keys are a contract: they are added to, never renamed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

from stallbook.report.model import Percentiles, RunReport
from stallbook.tally import Bin

__all__ = ["VERSION", "document", "dumps", "run_object"]

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
        "itl_ms": _percentiles(r.itl, "p50", "p90", "p99", "p999", "max"),
        "ttft_ms": _percentiles(r.ttft, "p50", "p99"),
        "tail": {
            "threshold_ms": r.tail_threshold_ms,
            "gaps": r.tail.gaps,
            "share": r.tail.share,
            "count": r.tail.primary,
        },
        "all": {"share": r.all.share, "count": r.all.primary},
        "forward_share": {"clean_median": r.forward_clean, "tail_median": r.forward_tail},
        "histogram": [_bin(one) for one in r.histogram],
        "context_ms": r.context_ms,
        "ceiling_ms": {cause: {"p99": c.p99, "p999": c.p999} for cause, c in r.ceiling.items()},
        "reconcile": {**vars(r.reconcile)},
        "counters": _counters(r),
        "baseline": r.baseline,
        "abilities": r.abilities,
        "machine": _machine(r),
        "notes": r.notes,
        "warnings": r.warnings,
        "facts": dict(r.facts),
    }
    return {key: _finite(value) for key, value in shape.items()}


def _percentiles(of: Percentiles, *names: str) -> dict[str, float | None]:
    return {name: getattr(of, name) for name in names}


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


def _finite(value: Any) -> Any:
    """Replace infinities and not-a-numbers by null, all the way down."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
