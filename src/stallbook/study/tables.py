"""The tables of a study, from its header and its finished runs. Computes medians and ranges; runs nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stallbook.causes import POST, ordered
from stallbook.digits import percent, short
from stallbook.study.drift import DRIFT_LIMIT, Drift, drift_of
from stallbook.study.firsts import firsts_table
from stallbook.study.folder import Folder
from stallbook.study.layout import (
    Cell,
    Table,
    as_data,
    as_markdown,
    as_text,
    count,
    ranged,
    wrapped,
)
from stallbook.study.outcomes import Outcome, Spread, Value, normalised, outcomes, share_of, spread, time_of
from stallbook.study.rungs import EVERY, Rung
from stallbook.study.steps import end_to_end, steps_table, targets_table

__all__ = ["Tables", "build", "to_json", "to_markdown", "to_text", "write"]

TIMES = {"p50": "p50", "p99": "p99", "p99.9": "p999", "max": "max"}
SHARE_NOTE = (
    "Shares are medians across runs, so a row need not sum to 100%. They are fractions of tail time: when one cause "
    "shrinks, the others grow. One factor a run divides out of them: normalising changes none."
)


@dataclass(frozen=True)
class Tables:
    """Everything a study prints."""

    head: tuple[str, ...]
    tables: tuple[Table, ...]
    normalised: frozenset[str]
    """Slugs of the tables that hold normalised numbers only."""
    facts: Mapping[str, Any]


def build(header: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], rules: str = "post") -> Tables:
    """Draw up the tables of a finished or partial study under one set of rules."""
    rungs = [rung for rung in EVERY if rung.slug in header["settings"]["rungs"]]
    runs = sorted(outcomes(lines, rules), key=lambda run: header["settings"]["seeds"].index(run.seed))
    even = [normalised(run) for run in runs]
    drift = drift_of(lines)
    causes = _causes(runs, rules)
    firsts = firsts_table(rungs, runs)
    tables = (
        _ladder("ladder", "as measured", rungs, runs),
        _ladder("ladder-normalised", "normalised by the probe", rungs, even),
        _shares(rungs, runs, causes),
        _per_run(rungs[0], runs, even, causes),
        _did(rungs, runs),
        _waits("waits", "as measured", rungs, runs),
        _waits("waits-normalised", "normalised by the probe", rungs, even),
        *([firsts] if firsts else []),
        targets_table(rungs, runs),
        steps_table(rungs, runs, even),
        end_to_end(rungs, runs, even),
    )
    facts = {
        "study": dict(header),
        "rules": rules,
        "runs": len(runs),
        "drift": {**asdict(drift), "marked": drift.marked},
    }
    hidden = frozenset({"ladder-normalised", "waits-normalised"})
    return Tables(tuple(_head(header, len(runs), rules, drift)), tables, hidden, facts)


def to_text(tables: Tables, *, show_normalised: bool = True) -> str:
    """All of it, in at most 80 columns."""
    shown = [as_text(table) for table in tables.tables if show_normalised or table.slug not in tables.normalised]
    return "\n".join(["\n".join(map(wrapped, tables.head)) + "\n", *shown])


def to_markdown(tables: Tables) -> str:
    """All of it, as Markdown."""
    return "\n".join(["\n".join(f"- {line}" for line in tables.head) + "\n", *map(as_markdown, tables.tables)])


def to_json(tables: Tables) -> str:
    """All of it, as numbers."""
    body = {
        "stallbook_tables": 1,
        **tables.facts,
        "head": list(tables.head),
        "tables": [as_data(t) for t in tables.tables],
    }
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def write(folder: Folder, header: Mapping[str, Any], rules: str) -> None:
    """Write tables.txt, tables.md and tables.json of the study."""
    tables = build(header, folder.results(), rules)
    for name, text in (
        ("tables.txt", to_text(tables)),
        ("tables.md", to_markdown(tables)),
        ("tables.json", to_json(tables)),
    ):
        folder.write(name, text)


def _head(header: Mapping[str, Any], runs: int, rules: str, drift: Drift) -> list[str]:
    settings, machine, versions = header["settings"], header["machine"], header["versions"]
    ratio = header["rate"] / header["auto_rate"]
    rungs, seeds = len(settings["rungs"]), len(settings["seeds"])
    head = [
        f"Ladder: {_plural(rungs, 'rung')}, {_plural(seeds, 'seed')} of {settings['seconds']:g} s, rules {rules}; "
        f"{runs} of {rungs * seeds} runs",
        f"Rate: {header['rate']:.3g} requests/s, {ratio:.2f} times the automatic rate here ({header['auto_rate']:.3g})",
        f"Machine: {machine['cpu']}, {machine['cores']} cores",
        f"Python {versions['python']}, NumPy {versions['numpy']}, stallbook {versions['stallbook']}; "
        f"started {header['started']}",
    ]
    if header["past_capacity"]:
        head.append("OVERLOAD: this rate is past capacity; queues need not drain")
    return [*head, *_speed(drift)]


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _speed(drift: Drift) -> list[str]:
    if drift.median_ns is None:
        return ["Speed: no run carries probe samples; nothing is normalised"]
    lines = [
        f"Speed: probe median {drift.median_ns / 1e3:.1f} us; slowest run {drift.spread:.0%} slower than the fastest "
        f"({drift.worst_seed_spread:.0%} within seed {drift.worst_seed})",
    ]
    if drift.marked:
        lines.append(
            f"DRIFT: the machine's speed moved by over {DRIFT_LIMIT:.0%} across runs; read both sets of tables"
        )
    return lines


def _causes(runs: Sequence[Outcome], rules: str) -> tuple[str, ...]:
    seen = {cause for run in runs for cause, share in run.share.items() if share}
    return ordered({*POST, *seen}) if rules == "post" else ordered({*seen, "fwd", "residual"})


def _of(runs: Sequence[Outcome], rung: Rung, value: Value) -> Spread | None:
    return spread(value(run) for run in runs if run.rung == rung.slug)


def _ladder(slug: str, how: str, rungs: Sequence[Rung], runs: Sequence[Outcome]) -> Table:
    rows = [(rung.name, [ranged(_of(runs, rung, time_of(key))) for key in TIMES.values()]) for rung in rungs]
    return Table(slug, f"Fix ladder, ITL in ms, {how}: median [min-max]", "rung", tuple(TIMES), rows)


def _shares(rungs: Sequence[Rung], runs: Sequence[Outcome], causes: Sequence[str]) -> Table:
    rows = []
    for rung in rungs:
        spreads = [_of(runs, rung, share_of(cause)) for cause in causes]
        rows.append((rung.name, [Cell(percent(s.median), raw=s) if s else Cell("-") for s in spreads]))
    title = "Tail time (gaps at or above p99) by cause: median share across runs"
    return Table("shares", title, "rung", tuple(causes), rows, (SHARE_NOTE,))


def _per_run(rung: Rung, runs: Sequence[Outcome], even: Sequence[Outcome], causes: Sequence[str]) -> Table:
    rows = []
    for run, flat in zip(runs, even, strict=True):
        if run.rung == rung.slug:
            p99s = [Cell(short(x.times["p99"]), raw=x.times["p99"]) for x in (run, flat)]
            shares = [run.share.get(cause, 0.0) for cause in causes]
            rows.append((str(run.seed), [*p99s, *(Cell(percent(share), raw=share) for share in shares)]))
    title = f"The tail of {rung.name}, run by run: p99 in ms, shares of tail time"
    return Table("per-run", title, "seed", ("p99", "norm.", *causes), rows)


def _did(rungs: Sequence[Rung], runs: Sequence[Outcome]) -> Table:
    counted = {"gen0": "gc0", "gen2": "gc2", "fallback": "eager_steps", "preempted": "preemptions"}
    rows = []
    for rung in rungs:
        mine = [run for run in runs if run.rung == rung.slug]
        pauses = spread(None if run.pauses is None else len(run.pauses) for run in mine)
        numbers = [ranged(spread(run.counts[key] for run in mine), count) for key in counted.values()]
        lengths = [_extent([x for run in mine for x in (which(run) or ())]) for which in _PAUSES]
        rows.append((rung.name, [ranged(pauses, count), *lengths, *numbers]))
    notes = (
        "pauses: full collections while serving; ms and start-up ms: the shortest and longest of all runs, serving "
        "and before; gen0, gen2: collections in all; fallback: decode steps above every captured size. "
        "Times as measured.",
    )
    columns = ("pauses", "ms", "start-up ms", *counted)
    return Table("did", "What each rung did: counts a run, median [min-max]", "rung", columns, rows, notes)


_PAUSES: tuple[Callable[[Outcome], tuple[float, ...] | None], ...] = (
    lambda run: run.pauses,
    lambda run: run.startup_pauses,
)


def _extent(values: Sequence[float]) -> Cell:
    if not values:
        return Cell("-")
    low, high = min(values), max(values)
    shown = short(low) if low == high else f"{short(low)}-{short(high)}"
    return Cell(shown, raw={"low": low, "high": high})


def _waits(slug: str, how: str, rungs: Sequence[Rung], runs: Sequence[Outcome]) -> Table:
    values: dict[str, Value] = {
        "TTFT p50": time_of("ttft_p50"),
        "TTFT p99": time_of("ttft_p99"),
        "tokens/s": lambda run: run.tokens_per_s,
    }
    rows = [(rung.name, [ranged(_of(runs, rung, value)) for value in values.values()]) for rung in rungs]
    return Table(slug, f"TTFT (ms) and throughput, {how}: median [min-max]", "rung", tuple(values), rows)
