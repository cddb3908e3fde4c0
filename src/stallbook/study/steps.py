"""What each step of the ladder moved: the verdict on adjacent rungs, the targeted causes, and the ladder's two ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from stallbook.compare.verdict import Verdict, Word, judge_shares, judge_times, weaker
from stallbook.digits import percent
from stallbook.study.layout import Cell, Table, ranged
from stallbook.study.outcomes import Outcome, Spread, Value, share_of, spread, time_of
from stallbook.study.rungs import Rung

__all__ = ["NEARLY_ZERO", "end_to_end", "steps_table", "targets_table"]

NEARLY_ZERO = 0.01
"""A cause whose median share of the tail is at most this is nearly gone."""
NUMBERS = {"p50": "p50", "p99": "p99", "p99.9": "p999", "max": "max", "TTFT p50": "ttft_p50"}
ENDS = {"p99": "p99", "p99.9": "p999", "max": "max"}

_RULE = (
    "change: median over seeds of the change from the rung before, as measured (norm.: normalised); down: seeds in "
    "which it fell; p: exact sign-flip test, two-sided. With 5 pairs, established: all the same way, and a mean of 4.6 "
    "standard errors or ranges that do not overlap; suggestive: all the same way, each by over 3% (0.1 points). The "
    "median must be over that in any case. Of measured and normalised the weaker word stands. Other numbers of pairs: "
    "see the docs of compare."
)


def steps_table(rungs: Sequence[Rung], runs: Sequence[Outcome], even: Sequence[Outcome]) -> Table:
    """A row for each number of each pair of adjacent rungs."""
    rows = []
    for below, rung in pairwise(rungs):
        for number, (label, cells) in enumerate(_step(below, rung, runs, even)):
            rows.append((rung.name if number == 0 else "", [Cell(label), *cells]))
    columns = ("number", "change", "norm.", "down", "p", "verdict")
    title = "Each step against the rung before it, seed by seed"
    return Table("steps", title, "step", columns, rows, (_RULE,), frozenset({0, 5}))


def _step(below: Rung, rung: Rung, runs: Sequence[Outcome], even: Sequence[Outcome]) -> list[tuple[str, list[Cell]]]:
    rows = []
    for label, key in NUMBERS.items():
        measured, flat = (judge_times(*_paired(below, rung, series, time_of(key))) for series in (runs, even))
        rows.append((label, _verdict_cells(measured, flat, _ratio)))
    cause = rung.cause
    if cause is not None:
        share = judge_shares(*_paired(below, rung, runs, share_of(cause)))
        rows.append((f"{cause} share", _verdict_cells(share, share, _points)))
    return rows


def _paired(below: Rung, rung: Rung, runs: Sequence[Outcome], value: Value) -> tuple[list[float], list[float]]:
    """The values of both rungs in the seeds where both have one."""
    of = {(run.rung, run.seed): value(run) for run in runs}
    before, after = [], []
    for seed in dict.fromkeys(run.seed for run in runs):
        a, b = of.get((below.slug, seed)), of.get((rung.slug, seed))
        if a is not None and b is not None:
            before.append(a)
            after.append(b)
    return before, after


def _verdict_cells(measured: Verdict, flat: Verdict, show: Callable[[float | None], str]) -> list[Cell]:
    word: Word = weaker(measured.word, flat.word)
    p = "-" if measured.p is None else f"{measured.p:.2f}" if measured.p >= 0.005 else "<.01"
    return [
        Cell(show(measured.change), raw=measured),
        Cell(show(flat.change), raw=flat),
        Cell(f"{measured.down}/{measured.pairs}", raw=measured.down),
        Cell(p, raw=measured.p),
        Cell(word, raw=word),
    ]


def _ratio(change: float | None) -> str:
    if change is None:
        return "-"
    return f"{change - 1:+.0%}" if change < 10 else f"x{change:.0f}"


def _points(change: float | None) -> str:
    """Percentage points; a change that is not 0 never prints as 0."""
    if change is None:
        return "-"
    if abs(change) < 0.0005:
        return "<0.1 pt" if change else "0 pt"
    return f"{change * 100:+.1f} pt"


def targets_table(rungs: Sequence[Rung], runs: Sequence[Outcome]) -> Table:
    """For each rung the share of the cause that it targets, below it and on it."""
    rows = []
    for below, rung in pairwise(rungs):
        if rung.cause is None:
            continue
        before, after = (_share(runs, which, rung.cause) for which in (below, rung))
        shares = [ranged(before, percent), ranged(after, percent)]
        rows.append((rung.name, [Cell(rung.cause), *shares, Cell(_gone(before, after))]))
    title = "The targeted cause's share of the tail: median [min-max]"
    note = f"nearly zero: a median of at most {NEARLY_ZERO:.0%}; was already: so was the rung before."
    columns = ("cause", "rung before", "this rung", "")
    return Table("targets", title, "rung", columns, rows, (note,), frozenset({0, 3}))


def _gone(before: Spread | None, after: Spread | None) -> str:
    if after is None:
        return "-"
    if after.median > NEARLY_ZERO:
        return "remains"
    return "was already" if before is not None and before.median <= NEARLY_ZERO else "nearly zero"


def _share(runs: Sequence[Outcome], rung: Rung, cause: str) -> Spread | None:
    return spread(run.share.get(cause, 0.0) for run in runs if run.rung == rung.slug)


def end_to_end(rungs: Sequence[Rung], runs: Sequence[Outcome], even: Sequence[Outcome]) -> Table:
    """The first rung against the last: do their ranges overlap?"""
    first, last = rungs[0], rungs[-1]
    rows = []
    for label, key in ENDS.items():
        for how, series in (("", runs), (" norm.", even)):
            ends = [spread(run.times[key] for run in series if run.rung == rung.slug) for rung in (first, last)]
            word = judge_times(*_paired(first, last, series, time_of(key))).word
            rows.append((label + how, [*map(ranged, ends), _overlap(*ends), Cell(word, raw=word)]))
    title = f"First against last rung, in ms: {first.name} and {last.name}"
    return Table("ends", title, "number", ("first", "last", "ranges", "verdict"), rows, left=frozenset({2, 3}))


def _overlap(first: Spread | None, last: Spread | None) -> Cell:
    if first is None or last is None:
        return Cell("-")
    if min(first.runs, last.runs) < 2:
        return Cell("too few runs")
    overlap = first.overlaps(last)
    return Cell("overlap" if overlap else "do not overlap", raw={"overlap": overlap})
