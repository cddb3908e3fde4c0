"""A finished run as the tables see it: times, shares and counts under one set of rules, as measured or normalised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stallbook.compare.spread import Spread, spread
from stallbook.study.drift import speed_factors

__all__ = ["Outcome", "Spread", "Value", "normalised", "outcomes", "share_of", "spread", "time_of"]


@dataclass(frozen=True)
class Outcome:
    """One run. What its log could not record is None."""

    rung: str
    seed: int
    factor: float | None
    """The speed factor of the run; None where the run has no probe."""
    times: Mapping[str, float | None]
    """In ms: p50, p99, p999, max, ttft_p50, ttft_p99."""
    tokens_per_s: float | None
    share: Mapping[str, float]
    """The tail's time by cause."""
    pauses: tuple[float, ...] | None
    """Full collections while serving, in ms."""
    startup_pauses: tuple[float, ...] | None
    counts: Mapping[str, int | None]
    """gc0, gc2, eager_steps, preemptions."""
    first: Mapping[str, float] | None
    """The mean wait for a first token by cause, in ms, by the full rules; None where the run's report lacks it."""
    blocked: Mapping[str, float] | None
    """What kept requests queueing, by what it was: ms a request; None where the log does not say."""


Value = Callable[[Outcome], "float | None"]
"""A number of a run."""


def time_of(name: str) -> Value:
    """Reads one of a run's times."""
    return lambda run: run.times[name]


def share_of(cause: str) -> Value:
    """Reads a cause's share of a run's tail; a cause without any has none of it."""
    return lambda run: run.share.get(cause, 0.0)


def outcomes(lines: Sequence[Mapping[str, Any]], rules: str) -> list[Outcome]:
    """The finished runs of a study under ``"post"`` or ``"full"`` rules."""
    factors = speed_factors(lines)
    return [_outcome(line, line[rules], factors.get((line["rung"], line["seed"]))) for line in lines]


def _first(report: Mapping[str, Any]) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    """The mean first token of a full report by cause, and what blocked it."""
    told = report.get("ttft") or {}
    means, waits, blocked = told.get("mean_ms"), told.get("waits"), told.get("blocked_ms")
    if not means or not waits:
        return None, None
    first = {cause: ms or 0.0 for cause, ms in means.items()}
    return first, None if blocked is None else {name: ms / waits for name, ms in blocked.items()}


def _outcome(line: Mapping[str, Any], report: Mapping[str, Any], factor: float | None) -> Outcome:
    itl, ttft, counters = report["itl_ms"], report["ttft_ms"], report["counters"]
    collections = counters.get("gc") or {}
    first, blocked = _first(line["full"])
    return Outcome(
        rung=line["rung"],
        seed=line["seed"],
        factor=factor,
        times={
            **{name: itl.get(name) for name in ("p50", "p99", "p999", "max")},
            **{f"ttft_{name}": ttft.get(name) for name in ("p50", "p99")},
        },
        tokens_per_s=report.get("tokens_per_s"),
        share={cause: value or 0.0 for cause, value in report["tail"]["share"].items()},
        pauses=_tuple(counters.get("gen2_serving_ms")),
        startup_pauses=_tuple(counters.get("gen2_startup_ms")),
        counts={
            "gc0": collections.get("0"),
            "gc2": collections.get("2"),
            "eager_steps": counters.get("eager_steps"),
            "preemptions": counters.get("preemptions"),
        },
        first=first,
        blocked=blocked,
    )


def _tuple(values: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)


def normalised(run: Outcome) -> Outcome:
    """The run with its times divided, and its rate multiplied, by its speed factor; unchanged where it has none."""
    factor = run.factor or 1.0
    return replace(
        run,
        times={name: None if ms is None else ms / factor for name, ms in run.times.items()},
        tokens_per_s=None if run.tokens_per_s is None else run.tokens_per_s * factor,
        pauses=run.pauses and tuple(ms / factor for ms in run.pauses),
        startup_pauses=run.startup_pauses and tuple(ms / factor for ms in run.startup_pauses),
    )
