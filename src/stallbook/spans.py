"""Charge spans of one request's own time: a gap, a first token's wait, a gap as a client saw it (rules 1 to 7).

What the engine did comes from the ledger. What the request spent evicted, held or in no batch is cut out of that,
charged to its cause, and what the engine did meanwhile is kept as context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallbook.away import Windows
from stallbook.gaps import Rhythm
from stallbook.intervals import bisect, expand, subtract, union
from stallbook.ledger import Ledger
from stallbook.run import NEVER, Ints, Run

__all__ = ["Charged", "Spans", "charge_spans"]


@dataclass(frozen=True)
class Spans:
    """A row a span [t0, t1) of a request, in ns. first, to: the emitting steps [first, to), counted as in `Rhythm`,
    emitted inside it, or may have left the request out; `to` is the step of the emission that it leads to.
    """

    request: Ints
    t0: Ints
    t1: Ints
    first: Ints
    to: Ints


@dataclass(frozen=True)
class Charged:
    """Parts and context of spans: ns, shape (causes, spans).

    unexplained: emitting steps of each span that no eviction, hold or `unscheduled` explains. cut: (span, t0, t1)
    of what went to rules 1 to 3. cut_cause: the row of `parts` that each of these went to.
    """

    parts: Ints
    context: Ints
    unexplained: Ints
    cut: tuple[Ints, Ints, Ints]
    cut_cause: Ints


@dataclass(frozen=True)
class _Cut:
    """A row a piece [t0, t1) of a span that goes to `cause`; in ns."""

    span: Ints
    t0: Ints
    t1: Ints
    cause: Ints


def charge_spans(run: Run, rhythm: Rhythm, ledger: Ledger, windows: Windows, spans: Spans, rules: str) -> Charged:
    """Charge every nanosecond of every span to one cause."""
    away, span, window = _overlaps(windows, spans, rhythm)
    left_out, unexplained = _left_out(run, rhythm, windows, spans, span, window, rules)
    left_out = _Cut(left_out.span, left_out.t0, left_out.t1, left_out.cause + ledger.index("unscheduled"))
    parts, *engine = _between(ledger, spans, away, left_out)
    context = np.zeros_like(parts[:-1])
    residual, whole = ledger.index("residual"), spans.t1 - spans.t0
    for cut, charged in zip((away, left_out), engine, strict=True):
        if not len(cut.span):
            continue
        length = cut.t1 - cut.t0
        charged[residual] = length - charged[-1]
        for k in range(len(context)):
            np.add.at(context[k], cut.span, charged[k])
            if k != residual:
                np.subtract.at(parts[k], cut.span, charged[k])
        np.add.at(parts[-1], cut.span, charged[residual])  # now covered: by the cut
        np.add.at(parts, (cut.cause, cut.span), length)
    parts[residual] += whole - parts[-1]
    cuts = [np.concatenate([getattr(cut, f) for cut in (away, left_out)]) for f in ("span", "t0", "t1", "cause")]
    return Charged(parts[:-1], context, unexplained, (cuts[0], cuts[1], cuts[2]), cuts[3])


def _between(ledger: Ledger, *windows: Spans | _Cut) -> list[Ints]:
    """What the engine did in windows of several kinds: one look at the ledger, which may walk all of it."""
    ends = np.concatenate([t for w in windows for t in (w.t0, w.t1)])
    upto, out, at = ledger.at(ends), [], 0
    for n in (len(w.t0) for w in windows):
        out.append(upto[:, at + n : at + 2 * n] - upto[:, at : at + n])
        at += 2 * n
    return out


def _overlaps(windows: Windows, spans: Spans, rhythm: Rhythm) -> tuple[_Cut, Ints, Ints]:
    """Every overlap of a span with a window of its request; and every pair of a span and a window that touches it, or
    the part before it of the interval in which it begins.
    """
    lo = np.searchsorted(windows.request, spans.request, "left")
    hi = np.searchsorted(windows.request, spans.request, "right")
    start = spans.t0.copy()
    inside = np.flatnonzero(spans.to > spans.first)
    first = spans.first[inside]
    begun = np.where(first > 0, rhythm.emit[np.maximum(first - 1, 0)], -NEVER)
    start[inside] = np.minimum(start[inside], begun)
    nth = bisect(windows.t1, lo, hi, start + 1)
    window, span = expand(nth, np.maximum(bisect(windows.t0, lo, hi, spans.t1) - nth, 0))
    t1 = np.minimum(windows.t1[window], spans.t1[span])
    touches = t1 > np.maximum(windows.t0[window], start[span])
    window, span, t1 = window[touches], span[touches], t1[touches]
    t0 = np.maximum(windows.t0[window], spans.t0[span])
    keep = t1 > t0
    return _Cut(span[keep], t0[keep], t1[keep], windows.cause[window[keep]]), span, window


def _left_out(
    run: Run, rhythm: Rhythm, windows: Windows, spans: Spans, away: Ints, window: Ints, rules: str
) -> tuple[_Cut, Ints]:
    """The intervals that left a live request out of their batch (rule 3), and the skipped steps left unexplained.

    away, window: the pairs of span and window. An interval that a window touches at all is not judged.
    """
    emit, n = rhythm.emit, len(spans.t0)
    stride = len(emit) + 2  # one long axis: span k's steps lie at k * stride
    rows = np.flatnonzero(spans.to > spans.first)
    begun = windows.t0[window] - windows.joined[window]  # an interval without length may lie where two pieces meet
    first, last = np.searchsorted(emit, begun, "right"), np.searchsorted(emit, windows.t1[window], "left")
    touched = union(
        away * stride + np.maximum(first, spans.first[away]), away * stride + np.minimum(last + 1, spans.to[away])
    )
    a, b, row = subtract(rows * stride + spans.first[rows], rows * stride + spans.to[rows], *touched)
    span = rows[row]
    unexplained = np.bincount(span, weights=b - a, minlength=n).astype(np.int64)
    none = a[:0]
    if rules == "post" or not run.members.known.any():
        return _Cut(none, none, none, none), unexplained
    ordinal, piece = expand(a - span * stride, b - a)
    span = span[piece]
    out = _not_in_batch(run, spans.request[span], rhythm.step[ordinal])
    span, ordinal = span[out], ordinal[out]
    unexplained -= np.bincount(span, minlength=n)
    before = np.where(ordinal > 0, emit[ordinal - 1], spans.t0[span]) if len(ordinal) else none
    t0, t1 = np.maximum(before, spans.t0[span]), np.minimum(emit[ordinal], spans.t1[span])
    keep = t1 > t0
    return _Cut(span[keep], t0[keep], t1[keep], np.zeros(int(keep.sum()), np.int64)), unexplained


def _not_in_batch(run: Run, request: Ints, step: Ints) -> npt.NDArray[np.bool_]:
    """Whether each step decoded others with a recorded batch that lacks the request."""
    judged = (run.members.known[step] > 0) & (run.steps.decode_tokens[step] > 0)
    n = len(run.requests.names)
    member_step = np.repeat(np.arange(len(run.steps.id)), np.diff(run.members.start))
    keys = member_step * n + run.members.request
    wanted = step * n + request
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    present = keys[at] == wanted if len(keys) else np.zeros(len(wanted), bool)
    return np.asarray(judged & ~present)
