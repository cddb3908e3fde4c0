"""A comparison as JSON. The keys are a contract: they are added to, never renamed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stallbook.compare import Answer, Comparison, Sample
from stallbook.compare.totals import Totals
from stallbook.compare.verdict import Verdict
from stallbook.report.jsonout import VERSION, finite
from stallbook.report.summary import Percentiles

__all__ = ["document", "dumps"]


def dumps(c: Comparison) -> str:
    """The document as indented text."""
    return json.dumps(document(c), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def document(c: Comparison) -> dict[str, Any]:
    """The document: a version and the comparison. `a` is compared with `b`."""
    b, a = c.merged
    told = {
        "a": _side(c.after, a),
        "b": _side(c.before, b),
        "paired": c.pairs is not None,
        "pairs": [{"seed": c.after[j].seed, "a": j, "b": i} for i, j in c.pairs or ()],
        "left_out": [s.path for s in c.alone],
        "settings": {key: {"a": after, "b": before} for key, (before, after) in c.settings.items()},
        "differences": [{"key": d.key, "what": d.text, "where": d.where} for d in c.allowed],
        "overall": {"answer": c.overall.word, "p": c.overall.p, "figures": c.overall.figures},
        "figures": {name: _answer(answer) for name, answer in c.answers.items()},
    }
    return {"stallbook": VERSION, "compare": finite(told)}


def _side(side: Sequence[Sample], merged: Totals) -> dict[str, Any]:
    return {
        "runs": [_run(s) for s in side],
        "merged": {
            "gaps": merged.all.gaps,
            "itl_ms": vars(Percentiles.of(merged.gaps.lengths)),
            "ttft_ms": vars(Percentiles.of(merged.ttft)),
            "tail_share": merged.tail.share,
        },
    }


def _run(s: Sample) -> dict[str, Any]:
    probe = s.speed.median_ns if s.speed else None
    return {"path": s.path, "seed": s.seed, "probe_ns": probe, "gaps": s.totals.all.gaps}


def _answer(a: Answer) -> dict[str, Any]:
    before, after = a.spreads
    return {
        "kind": a.figure.kind,
        "unit": {"time": "ms", "share": "1", "rate": "1/s", "count": "1"}[a.figure.kind],
        "b": None if before is None else {**vars(before), "values": a.before},
        "a": None if after is None else {**vars(after), "values": a.after},
        "change_is": "ratio" if a.ratio else "difference",
        "measured": _verdict(a.measured),
        "normalised": _verdict(a.normalised) if a.normalised else None,
        "interval_95": a.interval,
        "answer": a.word if a.missing is None else a.missing,
    }


def _verdict(v: Verdict) -> dict[str, Any]:
    return {
        "answer": v.word, "change": v.change, "p": v.p, "exact": v.exact, "pairs": v.pairs, "down": v.down, "up": v.up,
        "ranges_apart": v.apart,
    }  # fmt: skip
