"""How far a report can be trusted: the reconciliation, the baseline, the abilities, the machine, the instrument."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table

from stallbook.counters import STILL_DRIFT
from stallbook.report import selfcheck, words
from stallbook.report.layout import pairs
from stallbook.report.model import Reconciled, RunReport
from stallbook.report.summary import Summary

__all__ = ["rows", "table"]

NOISY = 0.20
"""A machine whose probe's middle 80% spreads wider than this was disturbed, drift or no drift."""
ROUGH = ("bounded", "hinted")
"""Abilities of causes that are known as a total, or without a start: told, not placed."""


def table(r: RunReport) -> Table:
    """Everything that speaks for or against the figures above."""
    return pairs(rows(r))


def rows(r: RunReport) -> Iterator[tuple[str, str]]:
    """Each thing that speaks for or against the figures, with its name."""
    yield "reconciliation", _reconciliation(r)
    if r.gaps:
        yield "residual", _residual(r)
    yield "skipped steps", _skipped(r)
    yield "baseline", _baseline(r)
    if weak := list(_rough(r)):
        yield "rough only", "; ".join(weak)
    yield "machine", _machine(r)
    yield "instrument", _instrument(r)
    yield from selfcheck.rows(r)
    if isinstance(client := r.facts.get("client"), Mapping):
        yield "client", _client(client)
    if r.notes:
        yield "repaired", ", ".join(f"{words.plain(slug).replace('_', ' ')}: {n:,}" for slug, n in r.notes.items())


def _reconciliation(r: RunReport) -> str:
    if r.exact:
        beside = "".join(f" and {words.many(one.all.gaps, noun)}" for noun, one in r.beside.items() if one.all.gaps)
        return f"exact: the parts of each of {words.many(r.gaps, 'gap')}{beside} add up to it, to 0 ns"
    checked: list[Reconciled | Summary] = [r.reconcile, *r.beside.values()]
    error, negative = max(one.max_error_ns for one in checked), sum(one.negative_parts for one in checked)
    return f"BROKEN: off by up to {error:,} ns, {negative:,} negative parts; do not use these figures"


def _residual(r: RunReport) -> str:
    left = r.all.share.get("residual")
    return f"{words.percent(left)} of all time has no record that explains it" if left else "none: all is explained"


def _rough(r: RunReport) -> Iterator[str]:
    """What is known of causes without their place in time."""
    for cause, ability in r.abilities.items():
        if ability not in ROUGH:
            continue
        total, hint = r.rough.totals.get(cause), r.rough.hints.get(cause)
        known = [] if total is None else [f"{words.unit(total / 1e6)} in all"]
        known += [] if hint is None else [words.plain(hint)]
        yield f"{words.plain(cause)} {ability}" + (f": {', '.join(known)}" if known else "")


def _skipped(r: RunReport) -> str:
    checked = r.reconcile
    if not checked.skipped_steps_unexplained:
        return "none unexplained"
    return (
        f"{checked.skipped_steps_unexplained:,} emitting steps passed a request by without a record of why "
        f"({checked.gaps_skipping:,} gaps)"
    )


def _baseline(r: RunReport) -> str:
    """The fitted cost of a decode step, and how well it is known."""
    fit = r.baseline
    method = str(fit.get("method") or "none")
    if method == "none":
        return f"none{_note(fit.get('note'))}: nothing is charged to graph, slow or pad by guess"
    told = [f"{_us(fit.get('fixed_ns'))} us + {_us(fit.get('row_ns'))} us a row"]
    if fit.get("kv_token_ns"):
        told.append(f"{float(fit['kv_token_ns']):.3g} ns a KV token")
    steps, spread = fit.get("steps_used"), fit.get("spread")
    quality = [f"{steps:,} steps"] if isinstance(steps, int) and steps > 0 else []
    quality += [f"spread {words.percent(spread)}"] if isinstance(spread, float) and spread == spread else []
    best = fit.get("best")
    if isinstance(best, float) and best == best:
        quality.append(f"best tenth at {best:.2f} of it")
    if without := fit.get("steps_without"):
        quality.append(f"none for {words.many(int(without), 'step')}: no guess there")
    known = f" ({', '.join(quality)})" if quality else ""
    return f"{method}: {' + '.join(told)}{known}{_note(fit.get('note'))}"


def _note(note: object) -> str:
    return f"; {words.plain(str(note))}" if note else ""


def _us(ns: object) -> str:
    return f"{ns / 1e3:,.1f}" if isinstance(ns, (int, float)) else "-"


def _machine(r: RunReport) -> str:
    s = r.speed
    if s is None:
        return f"speed {words.UNKNOWN_TEXT}: whether the machine held still is unknown"
    probe = f"probe {s.median_ns / 1e3:,.1f} us, middle 80% within {words.percent(s.spread)}"
    if s.thirds_ns is None or s.drift is None:
        return f"{s.samples:,} samples are too few for a drift; {probe}"
    moved = f"{words.percent(s.moved)} between thirds of the run, last against first {words.signed_percent(s.drift)}"
    if s.held_still and s.spread > NOISY:
        return f"no drift, but noisy: its speed moved {moved}; {probe}"
    if s.held_still:
        return f"held still: its speed moved {moved}; {probe}"
    return f"DID NOT HOLD STILL: its speed moved {moved} (limit {STILL_DRIFT:.0%}); {probe}"


def _instrument(r: RunReport) -> str:
    """The recorder's own cost and losses, as it measured them."""
    told = []
    closed = r.facts.get("closed")
    last = closed if isinstance(closed, Mapping) else r.facts.get("recorder")
    facts = last if isinstance(last, Mapping) else r.facts
    own = facts.get("self_ns")
    if isinstance(own, (int, float)) and r.counters.wall_s > 0:
        told.append(f"its own cost {words.percent(own / 1e9 / r.counters.wall_s)} of the run")
    for key, noun, what in (
        ("dropped", "record", " dropped"),
        ("errors", "internal error", ""),
        ("refused", "call", " refused"),
    ):
        if isinstance(facts.get(key), int):
            told.append(words.many(facts[key], noun) + what)
    if told and closed is None:
        told.append("the log was never closed, so its process was ended")
    return ", ".join(told) if told else f"its own cost: {words.UNKNOWN_TEXT}"


def _client(told: Mapping[str, object]) -> str:
    """What was joined to the log."""
    counts = {key: n for key in ("requests", "matched", "chunks") if isinstance(n := told.get(key), int)}
    return (
        f"{words.plain(str(told.get('tool', '')))}: {counts.get('matched', 0):,} of its "
        f"{words.many(counts.get('requests', 0), 'request')} joined, {words.many(counts.get('chunks', 0), 'chunk')}"
    )
