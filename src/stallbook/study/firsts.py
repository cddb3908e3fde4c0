"""The first token's wait, rung by rung: by cause, and what kept requests from being admitted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from stallbook.causes import ordered
from stallbook.digits import short
from stallbook.study.layout import Cell, Table
from stallbook.study.outcomes import Outcome, Value, spread
from stallbook.study.rungs import Rung

__all__ = ["firsts_table"]

LEAST = 0.02
"""A cause with less than this of the wait in every run is counted with the rest."""
BLOCKERS = {"by KV": "KV blocks", "by seqs": "the limit of sequences", "by budget": "the token budget"}
_NOTE = (
    "Mean over the requests of a run, median across runs, as measured; causes by the full rules, whatever the other "
    "tables show. rest: causes below 2% in every run. by KV, by seqs, by budget (where any): how long a request queued "
    "while KV blocks, the limit of sequences or the token budget kept the first out; explains queue, adds nothing."
)


def firsts_table(rungs: Sequence[Rung], runs: Sequence[Outcome]) -> Table | None:
    """What a request waits for before its first token; None where no run says."""
    firsts = [run.first for run in runs if run.first]
    if not firsts:
        return None
    named = ordered(c for first in firsts for c, ms in first.items() if ms >= LEAST * sum(first.values()))
    columns: dict[str, Value] = {"all": lambda run: _all(run)}
    columns |= {cause: _of(cause) for cause in named}
    columns["rest"] = lambda run: _all(run, leaving=named)
    columns |= {label: _blocked(name) for label, name in BLOCKERS.items() if _ever(runs, name)}
    rows = [(rung.name, [_cell(rung, runs, value) for value in columns.values()]) for rung in rungs]
    return Table("firsts", "The first token's wait by cause, ms a request", "rung", tuple(columns), rows, (_NOTE,))


def _cell(rung: Rung, runs: Sequence[Outcome], value: Value) -> Cell:
    found = spread(value(run) for run in runs if run.rung == rung.slug)
    return Cell(short(found.median), raw=found) if found else Cell("-")


def _all(run: Outcome, leaving: Sequence[str] = ()) -> float | None:
    return None if run.first is None else sum(ms for cause, ms in run.first.items() if cause not in leaving)


def _of(cause: str) -> Value:
    return lambda run: None if run.first is None else run.first.get(cause, 0.0)


def _ever(runs: Sequence[Outcome], name: str) -> bool:
    return any(run.blocked and run.blocked.get(name) for run in runs)


def _blocked(name: str) -> Value:
    return lambda run: None if run.blocked is None else run.blocked.get(name, 0.0)
