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
from typing import Any, Literal

import numpy as np

from stallbook import fast
from stallbook.abilities import Rough, abilities, rough
from stallbook.away import Windows, away_windows, touched_gaps
from stallbook.baseline import BaselineFit
from stallbook.causes import EXPLAINED_BY_WORK, ORDER, OTHER, POST, ordered
from stallbook.charges import charge, segment_cause, segment_names
from stallbook.gaps import Gaps, Rhythm, find_gaps, find_rhythm
from stallbook.ledger import Ledger
from stallbook.run import ExplicitBaseline, Ints, Run
from stallbook.spans import Charged, Spans, charge_spans
from stallbook.timeline import DECODE, build_timeline

__all__ = ["Partition", "Reconcile", "Rules", "partition", "primaries"]

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
    last rows, by the row in `Run.emissions` that ends the gap. ledger, windows: what any other span of the run is
    charged from, too. rough: what is known of causes without their place in time.
    context: what the engine did while the request was evicted, held or unscheduled; explains, is never added.
    hidden: ns a row, host work behind a busy device; likewise.
    """

    run: Run
    rules: Rules
    causes: tuple[str, ...]
    rhythm: Rhythm
    ledger: Ledger
    windows: Windows
    own: Ints
    rows: Ints
    context: Ints
    hidden: Ints
    row_gap: Ints
    row_weight: Ints
    row_primary: Ints
    reconcile: Reconcile
    baseline: BaselineFit
    abilities: Mapping[str, str]
    rough: Rough
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

    def to_arrow(self) -> Any:
        """Every gap with its parts as a `pyarrow.Table`: the columns of `stallbook gaps`. Needs the `parquet` extra."""
        from stallbook.frames import to_arrow  # a view for the caller's convenience: nothing here depends on it

        return to_arrow(self)

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame."""
        from stallbook.tables import to_pandas

        return to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """The same as a Polars DataFrame."""
        from stallbook.tables import to_polars

        return to_polars(self.to_arrow())

    def __repr__(self) -> str:
        """In one line: a partition is too large to print."""
        from stallbook.faces import partition_line

        return partition_line(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from stallbook.faces import partition_html

        return partition_html(self)


def partition(run: Run, rules: Rules = "full", baseline: ExplicitBaseline | None = None) -> Partition:
    """Charge every nanosecond of every gap of `run` to exactly one cause.

    rules: "full", or "post" for the post's seven causes and baseline. baseline: overrides the log's own.
    """
    if rules not in ("full", "post"):
        raise ValueError(f"rules is {rules!r}; it is 'full' or 'post'")
    timeline = build_timeline(run, rules)
    charges = charge(run, timeline, rules, baseline or run.baseline)
    rhythm, ledger = find_rhythm(run), Ledger(run, timeline, charges, _columns(run, rules))
    windows = away_windows(run, rules, ledger.causes)
    own = np.union1d(rhythm.skipping, touched_gaps(run, rhythm, windows))
    spans = _own_spans(run, rhythm, own)
    charged = charge_spans(run, rhythm, ledger, windows, spans, rules)
    rows, context = _all_rows(rhythm, ledger, charged)
    hidden = _hidden(rhythm, ledger, spans, charged)
    row_gap = np.concatenate([np.diff(rhythm.emit, prepend=rhythm.emit[:1]), spans.t1 - spans.t0])
    weight = _weights(run, rhythm, own)
    keep = _occurring(ledger.causes, rows, context, weight)
    causes, rows, context = tuple(np.array(ledger.causes)[keep].tolist()), rows[keep], context[keep]
    reconcile, primary = _reconcile(rows, row_gap, weight, charged.unexplained), primaries(causes, rows, row_gap)
    rows, context = np.ascontiguousarray(rows.T), np.ascontiguousarray(context.T)
    known = rough(run)
    return Partition(
        run, rules, causes, rhythm, ledger, windows, own, rows, context, hidden, row_gap, weight, primary, reconcile,
        charges.baseline, abilities(run, rules, charges, known), known, _notes(run, ledger, known),
    )  # fmt: skip


def _reconcile(rows: Ints, gap: Ints, weight: Ints, unexplained: Ints) -> Reconcile:
    seen = weight > 0
    error = int(np.abs(rows.sum(axis=0) - gap)[seen].max(initial=0))
    negative = int(((rows.min(axis=0) < 0) & seen).sum())
    return Reconcile(error, negative, int(unexplained.sum()), int((unexplained > 0).sum()))


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
    segments = {segment_cause(name) for name in segment_names(run)} - {DECODE}
    holds = {OTHER + run.names[i] for i in np.unique(run.holds.kind)}
    return ordered([*ORDER[: ORDER.index("frontend")], *segments, *holds])


def _own_spans(run: Run, rhythm: Rhythm, own: Ints) -> Spans:
    """The gaps that are not simply an interval, as spans of their request's time."""
    e = run.emissions
    frm, to = rhythm.ordinal[e.step[own - 1]], rhythm.ordinal[e.step[own]]
    return Spans(e.request[own], rhythm.emit[frm], rhythm.emit[to], frm + 1, to)


def _all_rows(rhythm: Rhythm, ledger: Ledger, own: Charged) -> tuple[Ints, Ints]:
    """Parts and context, a column a row: the intervals, shared by all that emitted at both ends, then the own gaps."""
    upto = ledger.at(rhythm.emit)
    shared = np.diff(upto, axis=1, prepend=upto[:, :1])
    residual = ledger.index("residual")
    shared[residual] = np.diff(rhythm.emit, prepend=rhythm.emit[:1]) - shared[-1]
    rows = np.concatenate([shared[:-1], own.parts], axis=1)
    return rows, np.concatenate([np.zeros_like(shared[:-1]), own.context], axis=1)


def _hidden(rhythm: Rhythm, ledger: Ledger, spans: Spans, charged: Charged) -> Ints:
    """Host work behind a busy device, a row each; not while the request was away."""
    upto = ledger.hidden(rhythm.emit)
    own = ledger.hidden(spans.t1) - ledger.hidden(spans.t0)
    span, t0, t1 = charged.cut
    np.subtract.at(own, span, ledger.hidden(t1) - ledger.hidden(t0))
    return np.concatenate([np.diff(upto, prepend=upto[:1]), own])


def _occurring(causes: tuple[str, ...], rows: Ints, context: Ints, weight: Ints) -> list[bool]:
    seen = weight > 0
    return [c in POST or bool(rows[k, seen].any() or context[k].any()) for k, c in enumerate(causes)]


def primaries(causes: tuple[str, ...], rows: Ints, gap: Ints) -> Ints:
    """Column of each gap's primary cause, -1 for clean. rows: ns, a column a gap.

    The largest part that can be one, if it is large enough; the first of equals.
    """
    best, part = np.full(len(gap), -1), np.zeros(len(gap), np.int64)
    for k, cause in enumerate(causes):
        if cause not in EXPLAINED_BY_WORK:
            more = rows[k] > part
            best, part = np.where(more, k, best), np.where(more, rows[k], part)
    return np.where((part >= PRIMARY_NS) & (4 * part >= gap), best, -1)


def _notes(run: Run, ledger: Ledger, known: Rough) -> dict[str, int]:
    found = {"identical_windows": ledger.timeline.duplicates, "capped_run_delay": ledger.charges.capped}
    found["ignored_totals_and_hints"] = known.ignored
    return dict(run.notes) | {slug: count for slug, count in found.items() if count}
