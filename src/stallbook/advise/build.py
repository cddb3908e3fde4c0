"""From a partition to advice: which causes own the tail, what speaks for each, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stallbook.abilities import NOT_RECORDED, unplaced
from stallbook.advise.engines import engine_of
from stallbook.advise.evidence import evidence
from stallbook.advise.fixes import fixes_of, record_of
from stallbook.advise.knobs import Engine, Knob
from stallbook.advise.measured import Measured, measure
from stallbook.advise.model import ALREADY, NEXT, NOT_IN_LOG, THEN, Advice, Finding, Fix, Remedy, Setting, Silence
from stallbook.causes import MEANING
from stallbook.partition import Partition

__all__ = ["LEAST_SHARE", "advise"]

LEAST_SHARE: Final = 0.05
"""A cause that owns no more of the tail than this is left alone."""
BEYOND: Final = {"engine": ("frontend", "network", "queue"), "frontend": ("network", "queue"), "client": ("queue",)}
"""Causes that gaps at a boundary cannot hold."""


def advise(p: Partition, boundary: str = "engine") -> Advice:
    """The advice on one run's gaps at a boundary, the largest share of the tail's time first."""
    m, run = measure(p, boundary), p.run
    engine, share = engine_of(run.engine), m.tail.share
    doubtful = unplaced(run, p.abilities)
    owners = sorted((c for c in share if share[c] > LEAST_SHARE), key=lambda c: -share[c])
    length, ttft = m.table.lengths, m.counters.ttft
    return Advice(
        path=run.path,
        engine=run.engine,
        boundary=run.boundary if boundary == "engine" else boundary,
        rules=p.rules,
        threshold_ms=_ms(m.table.tail_ns),
        tail_gaps=m.tail.gaps,
        gaps=length.count,
        present={
            "p50": _ms(length.percentile(50)), "p99": _ms(length.percentile(99)), "p999": _ms(length.percentile(99.9)),
            "worst gap": _ms(length.max), "TTFT p50": _ms(ttft.percentile(50)), "TTFT p99": _ms(ttft.percentile(99)),
            "throughput": m.counters.tokens_per_s,
        },
        findings=tuple(_finding(m, engine, doubtful, cause) for cause in owners if cause not in doubtful),
        silences=tuple(_silences(m, doubtful)),
        ruled_out=tuple(
            c for c in p.abilities if c not in {*doubtful, *BEYOND[boundary], "residual"} and not m.tail.time_ns.get(c)
        ),
        source=_source(engine, run.engine),
        least_share=LEAST_SHARE,
        simulated=engine is not None and engine.simulated,
        notes=dict(run.notes),
    )  # fmt: skip


def _source(engine: Engine | None, log: str) -> str:
    """Where the names of the knobs were read, and whether the log is of another version."""
    if engine is None:
        return ""
    return engine.source + (f"; this log is of {log}: check its help" if engine.version not in log else "")


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _finding(m: Measured, engine: Engine | None, doubtful: frozenset[str], cause: str) -> Finding:
    left = m.table.without(cause)
    return Finding(
        cause=cause,
        meaning=MEANING.get(cause, "a named segment or hold"),
        ability=m.p.abilities.get(cause, NOT_RECORDED),
        share=m.tail.share[cause],
        leads=m.tail.primary.get(cause, 0),
        evidence=evidence(m, cause),
        remedies=_remedies(m, engine, cause),
        p99=_ms(left.percentile(99)),
        p999=_ms(left.percentile(99.9)),
        record=_record_first(doubtful, cause),
    )


def _record_first(doubtful: frozenset[str], cause: str) -> str:
    """What leaves a cause in doubt, and should be recorded before anything is changed."""
    if cause == "residual":
        return record_of("residual")
    return record_of("os") if cause == "slow" and "os" in doubtful else ""


def _remedies(m: Measured, engine: Engine | None, cause: str) -> tuple[Remedy, ...]:
    """The cause's fixes: what can be set in this engine first, what has no knob after it, what is done last."""
    told = [_remedy(m, engine, fix) for fix in fixes_of(cause)]
    done = [one for one in told if one.state == ALREADY]
    left = sorted((one for one in told if one.state != ALREADY), key=lambda one: not one.settings)
    first = [Remedy(one.fix, NEXT, one.settings) for one in left[:1]]
    return (*first, *left[1:], *done)


def _remedy(m: Measured, engine: Engine | None, fix: Fix) -> Remedy:
    if engine is None:
        return Remedy(fix, THEN, ())
    if why := engine.by_itself.get(fix.slug):
        return Remedy(fix, ALREADY, (), why)
    knobs = [knob for knob in engine.of(fix.slug) if knob.when(m)]
    settings = tuple(_setting(m, knob) for knob in knobs)
    for knob, setting in zip(knobs, settings, strict=True):
        if setting.present != NOT_IN_LOG and knob.done(setting.present, m):
            return Remedy(fix, ALREADY, (setting,))
    return Remedy(fix, THEN, settings)


def _setting(m: Measured, knob: Knob) -> Setting:
    to = knob.to if isinstance(knob.to, str) else knob.to(m)
    return Setting(knob.flag, knob.move, to, m.setting(knob.key), knob.default)


def _silences(m: Measured, doubtful: frozenset[str]) -> Iterator[Silence]:
    """Causes that the log cannot place, with what it knows of them."""
    known = m.p.rough
    for cause, ability in m.p.abilities.items():
        if cause in doubtful and cause not in BEYOND[m.boundary]:
            total, hint = known.totals.get(cause), known.hints.get(cause, "")
            told = [] if total is None else [f"{total / 1e6:,.0f} ms in the whole run"]
            share = m.tail.share.get(cause, 0.0)
            yield Silence(cause, ability, "; ".join([*told, *([hint] if hint else [])]), record_of(cause), share)
