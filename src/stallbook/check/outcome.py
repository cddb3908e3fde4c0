"""Runs held against limits: a row a demand, and whether it holds. What a log cannot show has not passed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stallbook.check.limits import Limit, Regression, shown, shown_change
from stallbook.compare import Answer, Comparison, Sample
from stallbook.compare.alike import differences, refuse
from stallbook.compare.figures import NO_SUCH, NOT_CHARGED, NOT_PART, Figure, unknown
from stallbook.compare.spread import Spread, spread
from stallbook.compare.totals import Totals, together
from stallbook.compare.verdict import LEAST_PAIRS, SUGGESTIVE_P
from stallbook.errors import StallbookError

__all__ = ["Checked", "Row", "Status", "check"]

Status = Literal["failed", "unresolved", "passed"]

WORTH_POOLING: Final = ("engine", "workload", "settings", "rules", "boundary", "abilities")
"""In what runs that are checked together must be alike."""


@dataclass(frozen=True)
class Row:
    """One demand. found: the value, or the change for the worse; None where there is none. why: in a clause."""

    kind: Literal["max", "min", "regression"]
    figure: Figure
    name: str
    limit: float
    found: float | None
    told: str
    """`found` with its unit."""
    status: Status
    why: str
    runs: Spread | None = None
    """The figure run by run."""
    answer: Answer | None = None


@dataclass(frozen=True)
class Checked:
    """Every demand on a set of runs."""

    runs: tuple[Sample, ...]
    against: tuple[Sample, ...]
    rows: tuple[Row, ...]
    totals: Totals
    """The runs as one."""

    def of(self, status: Status) -> list[Row]:
        """The rows of this status."""
        return [row for row in self.rows if row.status == status]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.of("failed")


def check(
    runs: Sequence[Sample], limits: Sequence[Limit], comparison: Comparison | None = None,
    regressions: Sequence[Regression] = (), *, allow: Sequence[str] = (), strict: bool = False,
) -> Checked:  # fmt: skip
    """Hold runs against limits; and a comparison of them with others against what may be worse.

    strict: a change over its limit fails even where the runs cannot tell it from noise.
    """
    if not runs:
        raise StallbookError("no-runs", "there is no run to check", "name one or more")
    refuse([d for d in differences([runs]) if d.key in WORTH_POOLING], allow)
    totals = together([s.totals for s in runs])
    rows = [_limited(limit, runs, totals) for limit in limits]
    if comparison is not None:
        rows += [_regressed(one, comparison, strict) for one in regressions]
    return Checked(tuple(runs), comparison.before if comparison else (), tuple(rows), totals)


def _limited(limit: Limit, runs: Sequence[Sample], totals: Totals) -> Row:
    one = limit.figure
    missing = _missing(one, runs)
    values = [value for value in one.values(s.totals for s in runs) if value is not None]
    if one.kind == "count":  # a count is one of a run: the run that is furthest off decides
        found = None if len(values) < len(runs) else max(values) if limit.side == "max" else min(values)
    else:
        found = one.read(totals)
    row = Row(limit.side, one, limit.name, limit.value, found, "-", "failed", "", spread(values))
    if missing is not None or found is None:
        return _row(row, found=None, told="-", why=missing or "not recorded, or nothing to measure: cannot pass")
    if limit.holds(found):
        return _row(row, told=shown(one, found), status="passed")
    return _row(row, told=shown(one, found), why=_off(one, limit.value, found))


def _row(row: Row, **changes: object) -> Row:
    return Row(**{**vars(row), **changes})


def _off(one: Figure, limit: float, found: float) -> str:
    """How far a value is off its limit."""
    how = "over" if found > limit else "under"
    if one.kind == "share":
        points = abs(found - limit) * 100
        return f"{points:.1f} points {how}" if points >= 0.05 else f"<0.1 points {how}"
    if limit > 0 and abs(found / limit - 1) < 0.005:
        return f"<1% {how}"
    return f"{abs(found / limit - 1):.0%} {how}" if limit > 0 else f"{shown(one, abs(found - limit))} {how}"


def _missing(one: Figure, runs: Sequence[Sample]) -> str | None:
    """Why the figure of a cause cannot be checked; a name that no run can have is the user's error."""
    reasons = [(unknown(one, s), s) for s in runs]
    for why, s in reasons:
        if why in (NOT_PART, NOT_CHARGED):
            see = "see first.queue" if one.cause == "queue" else "check --rules and --boundary"
            raise StallbookError("unknown-figure", f"{one.name}: {one.cause} is {why}", see, s.path)
    if all(why == NO_SUCH for why, _ in reasons):
        return f"{NO_SUCH}: cannot pass"
    told = [(why, s) for why, s in reasons if why not in (None, NO_SUCH)]
    return f"{told[0][0]} by {told[0][1].name}: cannot pass" if told else None


def _regressed(limit: Regression, c: Comparison, strict: bool) -> Row:
    one, answer = limit.figure, c.ask(limit.figure.name)
    missing = _missing(one, [*c.after, *c.before])
    change = None if missing else _worse(limit, answer)
    row = Row("regression", one, limit.name, limit.value, change, "-", "failed", "", answer.spreads[1], answer)
    if change is None:
        return _row(row, why=missing or "nothing to compare: cannot pass")
    row = _row(row, told=shown_change(limit, change))
    if change <= limit.value:
        return _row(row, status="passed", why="" if answer.word == "not resolved" else f"{answer.word} change")
    if answer.word != "not resolved":
        return _row(row, why=f"{answer.word} (p = {answer.measured.p:.2g})")
    if not _resolvable(c, answer):
        return _row(row, why=f"{_sizes(answer)}: noise unknown, judged by the figure alone")
    if strict:
        return _row(row, why="not resolved, but over the limit")
    return _row(row, status="unresolved", why=f"not resolved from noise (p = {answer.measured.p:.2f})")


def _worse(limit: Regression, answer: Answer) -> float | None:
    """How much worse it got; of measured and normalised the smaller, as with the answers."""
    found = list(_worsenings(limit, answer))
    return min(found) if found else None


def _worsenings(limit: Regression, answer: Answer) -> Iterator[float]:
    for verdict in (answer.measured, answer.normalised):
        if verdict is not None and verdict.change is not None:
            change = verdict.change
            if not limit.relative:
                yield change
            else:
                yield 1 - change if limit.figure.kind == "rate" else change - 1


def _resolvable(c: Comparison, answer: Answer) -> bool:
    """Whether so many runs could tell any change from noise."""
    before, after = len(answer.before), len(answer.after)
    if c.pairs is not None:
        return after >= LEAST_PAIRS
    return 2 / math.comb(before + after, after) <= SUGGESTIVE_P


def _sizes(answer: Answer) -> str:
    before, after = len(answer.before), len(answer.after)
    return f"{after} against {before} run{'s' if before != 1 else ''}"
