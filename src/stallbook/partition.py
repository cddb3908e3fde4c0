"""Gaps by cause: every nanosecond of every gap charged to exactly one cause, in exact integers.

For each cause a cumulative function of time is evaluated once per emitting step (`stallbook.ledger`); the part
of a gap is a difference of two values, less what the request spent evicted, held or unscheduled. All requests
that emitted at two consecutive emitting steps have the same gap with the same parts, so these are kept once, as
a row with a weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from stallbook import fast
from stallbook.abilities import abilities
from stallbook.away import Away, Skipped, away_windows, cut_gaps, skipped_steps
from stallbook.baseline import BaselineFit
from stallbook.causes import EXPLAINED_BY_WORK, ORDER, OTHER, POST, ordered
from stallbook.charges import Charges, charge, segment_cause
from stallbook.gaps import Gaps, Rhythm, find_gaps, find_rhythm
from stallbook.ledger import Ledger
from stallbook.run import ExplicitBaseline, Ints, Run
from stallbook.timeline import DECODE, Timeline, build_timeline

__all__ = ["Partition", "Reconcile", "Rules", "partition"]

Rules = Literal["full", "post"]

PRIMARY_NS = 1_000_000
"""The least part that can be a gap's primary cause, if it also is a quarter of the gap."""


@dataclass(frozen=True)
class Reconcile:
    """What must hold, measured: both first fields are 0 or the analysis is wrong."""

    max_error_ns: int
    negative_parts: int
    skipped_steps_unexplained: int
    gaps_skipping: int


@dataclass(frozen=True)
class Partition:
    """The partition of all gaps of a run.

    causes: the columns, in the order that breaks ties; those that occur nowhere are left out (the post's seven
    never are). rows, context: ns, shape (rows, causes). row_gap: ns. row_weight: how many gaps have the row.
    row_primary: column of the primary cause, -1 for clean. own: the gaps with a row of their own, which are the
    last rows, by the row in `Run.emissions` that ends the gap.
    context: what the engine did while the request was evicted, held or unscheduled; explains, is never added.
    """

    run: Run
    rules: Rules
    causes: tuple[str, ...]
    rhythm: Rhythm
    own: Ints
    rows: Ints
    context: Ints
    row_gap: Ints
    row_weight: Ints
    row_primary: Ints
    reconcile: Reconcile
    baseline: BaselineFit
    abilities: Mapping[str, str]
    notes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def gaps(self) -> Gaps:
        """The gaps as a table, made when asked for."""
        return find_gaps(self.run, self.rhythm)

    @cached_property
    def row_of_gap(self) -> Ints:
        """The row of each gap of `gaps`."""
        row = self.gaps.to.copy()
        row[np.searchsorted(self.gaps.end, self.own)] = len(self.rhythm.emit) + np.arange(len(self.own))
        return row

    def parts(self, out: Ints | None = None) -> Ints:
        """Every part of every gap, ns, shape (gaps, causes); into `out` where given."""
        e, gaps = self.run.emissions, int(self.row_weight.sum())
        if fast.worth(gaps):
            out = np.empty((gaps, len(self.causes)), np.int64) if out is None else out
            return fast.spread(e.request, e.step, self.rhythm.ordinal, self.own, self.rows, len(self.rhythm.emit), out)
        return np.take(self.rows, self.row_of_gap, axis=0, out=out, mode="clip" if out is not None else "raise")


def partition(run: Run, rules: Rules = "full", baseline: ExplicitBaseline | None = None) -> Partition:
    """Charge every nanosecond of every gap of `run` to exactly one cause.

    rules: "full", or "post" for the post's seven causes and baseline. baseline: overrides the log's own.
    """
    if rules not in ("full", "post"):
        raise ValueError(f"rules is {rules!r}; it is 'full' or 'post'")
    rhythm = find_rhythm(run)
    timeline = build_timeline(run, rules)
    charges = charge(run, timeline, rules, baseline or run.baseline)
    ledger = Ledger(run, timeline, charges, _columns(run, rules))
    away = cut_gaps(run, rhythm, away_windows(run, rules, ledger.causes))
    skipped = skipped_steps(run, rhythm, away, rules)
    own = np.union1d(rhythm.skipping, away.gap)
    rows, context, row_gap = _charge_rows(run, rhythm, ledger, own, away, skipped)
    weight = _weights(run, rhythm, own)
    keep = _occurring(ledger.causes, rows, context, weight)
    causes, rows, context = tuple(np.array(ledger.causes)[keep].tolist()), rows[keep], context[keep]
    reconcile, primary = _reconcile(rows, row_gap, weight, skipped), _primary(causes, rows, row_gap)
    return Partition(
        run, rules, causes, rhythm, own, np.ascontiguousarray(rows.T), np.ascontiguousarray(context.T), row_gap,
        weight, primary, reconcile, charges.baseline, abilities(run, rules, charges), _notes(run, timeline, charges),
    )  # fmt: skip


def _reconcile(rows: Ints, gap: Ints, weight: Ints, skipped: Skipped) -> Reconcile:
    seen = weight > 0
    error = int(np.abs(rows.sum(axis=0) - gap)[seen].max(initial=0))
    return Reconcile(error, int(((rows.min(axis=0) < 0) & seen).sum()), skipped.unexplained, skipped.gaps)


def _weights(run: Run, rhythm: Rhythm, own: Ints) -> Ints:
    """How many gaps each row stands for: those of an interval less the ones with a row of their own."""
    to = rhythm.ordinal[run.emissions.step[own]]
    adjacent = to - rhythm.ordinal[run.emissions.step[own - 1]] == 1
    shared = rhythm.weight - np.bincount(to[adjacent], minlength=len(rhythm.emit))
    return np.concatenate([shared, np.ones(len(own), np.int64)])


def _columns(run: Run, rules: Rules) -> tuple[str, ...]:
    """Every cause that this run could charge."""
    if rules == "post":
        return POST
    segments = {segment_cause(run.names[i]) for i in np.unique(run.segments.name)} - {DECODE}
    holds = {OTHER + run.names[i] for i in np.unique(run.holds.kind)}
    return ordered([*ORDER[: ORDER.index("frontend")], *segments, *holds])


def _charge_rows(
    run: Run, rhythm: Rhythm, ledger: Ledger, own: Ints, away: Away, skipped: Skipped
) -> tuple[Ints, Ints, Ints]:
    """Rows, their context (both one column a row) and their gap lengths.

    The first rows are the intervals of the emitting steps, shared by all that emitted at both of their ends; then
    comes a row for each gap of its own: one that skips steps, or whose request was away.
    """
    n, emit = len(rhythm.emit), rhythm.emit
    upto = ledger.at(emit)
    at = np.arange(n)
    frm = np.concatenate([np.maximum(at - 1, 0), rhythm.ordinal[run.emissions.step[own - 1]]])
    to = np.concatenate([at, rhythm.ordinal[run.emissions.step[own]]])
    rows = np.take(upto, to, axis=1) - np.take(upto, frm, axis=1)
    context = np.zeros_like(rows[:-1])
    residual = ledger.causes.index("residual")
    row, span = n + np.searchsorted(own, away.gap), away.t1 - away.t0
    _take_out(rows, context, residual, row, ledger.at(away.t1) - ledger.at(away.t0), span)
    _charge(rows, away.cause, row, span)
    if len(skipped.gap):
        a, b = skipped.step - 1, skipped.step
        row, span = n + np.searchsorted(own, skipped.gap), emit[b] - emit[a]
        _take_out(rows, context, residual, row, upto[:, b] - upto[:, a], span)
        _charge(rows, np.full(len(row), ledger.causes.index("unscheduled")), row, span)
    length = emit[to] - emit[frm]
    rows[residual] = length - rows[-1]
    return rows[:-1], context, length


def _charge(rows: Ints, cause: Ints, row: Ints, span: Ints) -> None:
    """Add `span` ns to a cause of a row, and to the last row: what is charged at all."""
    np.add.at(rows.reshape(-1), cause * rows.shape[1] + row, span)
    np.add.at(rows[-1], row, span)


def _take_out(rows: Ints, context: Ints, residual: int, row: Ints, charged: Ints, span: Ints) -> None:
    """Move what the engine did in a window out of the gap's parts and into its context."""
    for k in range(len(rows)):
        np.subtract.at(rows[k], row, charged[k])
    for k in range(len(context)):
        np.add.at(context[k], row, charged[k])
    np.add.at(context[residual], row, span - charged[-1])


def _occurring(causes: tuple[str, ...], rows: Ints, context: Ints, weight: Ints) -> list[bool]:
    seen = weight > 0
    return [c in POST or bool(rows[k, seen].any() or context[k].any()) for k, c in enumerate(causes)]


def _primary(causes: tuple[str, ...], rows: Ints, gap: Ints) -> Ints:
    """The largest part that can be one, if it is large enough; the first of equals."""
    best, part = np.full(len(gap), -1), np.zeros(len(gap), np.int64)
    for k, cause in enumerate(causes):
        if cause not in EXPLAINED_BY_WORK:
            more = rows[k] > part
            best, part = np.where(more, k, best), np.where(more, rows[k], part)
    return np.where((part >= PRIMARY_NS) & (4 * part >= gap), best, -1)


def _notes(run: Run, timeline: Timeline, charges: Charges) -> dict[str, int]:
    found = {"identical_windows": timeline.duplicates, "capped_run_delay": charges.capped}
    return dict(run.notes) | {slug: count for slug, count in found.items() if count}
