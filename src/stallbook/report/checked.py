"""What a check found: as text, as a Markdown summary for a pull request, and as JSON. All rows say the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from stallbook.check import Checked, Row
from stallbook.check.limits import shown
from stallbook.compare import Sample
from stallbook.compare.figures import FIGURES
from stallbook.compare.spread import Spread
from stallbook.report import junit, words
from stallbook.report.jsonout import VERSION, finite
from stallbook.report.lines import grid, wrapped
from stallbook.report.markdown import cell, code, literal, table
from stallbook.report.summary import Percentiles

__all__ = ["FORMATS", "as_json", "as_markdown", "as_text", "document", "verdict"]

ORDER: Final = ("failed", "unresolved", "passed")
MARK: Final = {"failed": "FAILED", "unresolved": "unresolved", "passed": "passed"}
NAMED: Final = 5
TOLD: Final = ("itl.p50", "itl.p99", "itl.p99.9", "itl.max", "ttft.p50", "ttft.p99", "tokens_per_s")
"""What else is said of the runs, so that a reader need not open anything."""


def verdict(c: Checked) -> str:
    """One sentence: what failed, of how much."""
    of, runs = words.many(len(c.rows), "check"), words.many(len(c.runs), "run")
    unresolved = f"; {len(c.of('unresolved'))} not resolved from noise" if c.of("unresolved") else ""
    if c.passed:
        return f"Passed: {of} of {runs}{unresolved}."
    failed = c.of("failed")
    return f"FAILED: {len(failed)} of {of} of {runs}: {', '.join(_short(row) for row in failed)}{unresolved}."


def _short(row: Row) -> str:
    return words.plain(row.figure.name) + (" (worse than before)" if row.kind == "regression" else "")


def _sorted(c: Checked) -> list[Row]:
    return sorted(c.rows, key=lambda row: ORDER.index(row.status))


def as_text(c: Checked) -> str:
    """A table of all checks, what failed first, in 80 columns."""
    return "\n".join(_lines(c)) + "\n"


def _lines(c: Checked) -> Iterator[str]:
    yield from wrapped(verdict(c))
    yield ""
    rows = [(words.plain(row.name), row.told, MARK[row.status]) for row in _sorted(c)]
    yield from grid(("check", "found", ""), rows, (0, 2))
    yield ""
    for row in _sorted(c):
        if row.status != "passed":
            yield from wrapped(f"{MARK[row.status]}: {_sentence(row)}", "", "  ")
    yield from wrapped(_context(c), "", "  ")
    yield from wrapped(_owners(c), "", "  ")
    yield from wrapped(f"Runs: {', '.join(_names(c.runs))}.", "", "  ")
    if c.against:
        yield from wrapped(f"Against: {', '.join(_names(c.against))}.", "", "  ")


def _sentence(row: Row) -> str:
    """A row as a sentence, with what the runs said one by one."""
    found = f" is {row.told}" if row.found is not None else ""
    return f"{words.plain(row.figure.name)}{found}, wanted {_wanted(row)}: {words.plain(row.why)}{_spread(row)}."


def _spread(row: Row) -> str:
    if row.answer is not None and all(row.answer.spreads):
        before, after = row.answer.spreads
        return f"; {_ranged(row, before)} before, {_ranged(row, after)} now"
    return f"; run by run {_ranged(row, row.runs)}" if row.runs is not None and row.runs.runs > 1 else ""


def _ranged(row: Row, values: Spread | None) -> str:
    if values is None:
        return "-"
    middle, low, high = (shown(row.figure, v) for v in (values.median, values.low, values.high))
    return f"{middle} [{low} to {high}]" if values.runs > 1 else middle


def _context(c: Checked) -> str:
    told = (
        f"{name} {shown(FIGURES[name], value)}" for name in TOLD if (value := FIGURES[name].read(c.totals)) is not None
    )
    runs = "The runs together" if len(c.runs) > 1 else "The run"
    return f"{runs}: {', '.join(told)}; {c.totals.all.gaps:,} gaps."


def _owners(c: Checked) -> str:
    share = c.totals.tail.share
    return f"The tail's time: {words.shares(share, 5)}." if share else "The tail holds no time."


def _names(side: Sequence[Sample]) -> list[str]:
    told = [words.plain(s.path or s.name) for s in side[:NAMED]]
    return [*told, *([f"{len(side) - NAMED} more"] if len(side) > NAMED else [])]


def as_markdown(c: Checked) -> str:
    """A summary for a pull request."""
    lines = [f"### stallbook: {cell(verdict(c))}", ""]
    lines += table(("figure", "wanted", "found", "", "why"), map(_cells, _sorted(c)))
    lines += ["", cell(_context(c)), "", cell(_owners(c)), ""]
    engine = f"Engine: {cell(c.runs[0].engine) or 'unnamed'}; rules {cell(c.runs[0].rules)}."
    against = f" Against: {code(_names(c.against))}." if c.against else ""
    lines.append(f"<sub>Runs: {code(_names(c.runs))}.{against} {engine}</sub>")
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    mark = f"**{MARK[row.status]}**" if row.status == "failed" else MARK[row.status]
    return literal(row.figure.name), cell(_wanted(row)), cell(row.told), mark, cell(row.why)


def _wanted(row: Row) -> str:
    return row.name.removeprefix(row.figure.name).strip()


def document(c: Checked) -> dict[str, Any]:
    """The JSON document. Its keys are a contract: added to, never renamed."""
    told = {
        "passed": c.passed,
        "counts": {status: len(c.of(status)) for status in ORDER},
        "rows": [_row(row) for row in c.rows],
        "runs": [s.path for s in c.runs],
        "against": [s.path for s in c.against],
        "together": {
            "gaps": c.totals.all.gaps,
            "itl_ms": vars(Percentiles.of(c.totals.gaps.lengths)),
            "ttft_ms": vars(Percentiles.of(c.totals.ttft)),
            "tokens_per_s": FIGURES["tokens_per_s"].read(c.totals),
            "tail_share": c.totals.tail.share,
        },
    }
    return {"stallbook": VERSION, "check": finite(told)}


def _row(row: Row) -> dict[str, Any]:
    a = row.answer
    return {
        "figure": row.figure.name,
        "kind": row.kind,
        "check": row.name,
        "limit": row.limit,
        "found": row.found,
        "unit": {"time": "ms", "share": "1", "rate": "1/s", "count": "1"}[row.figure.kind]
        if row.kind != "regression" or row.figure.cause
        else "1",
        "status": row.status,
        "why": row.why,
        "runs": vars(row.runs) if row.runs else None,
        "answer": a.word if a is not None else None,
        "p": a.measured.p if a is not None else None,
    }


def as_json(c: Checked) -> str:
    """The document as indented text."""
    return json.dumps(document(c), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def as_junit(c: Checked) -> str:
    """For what reads test results: a test case a check."""
    return junit.dumps(c, [_sentence(row) for row in c.rows], "\n".join((_context(c), _owners(c))))


FORMATS: Final[dict[str, Callable[[Checked], str]]] = {
    "text": as_text, "json": as_json, "junit": as_junit, "markdown": as_markdown,
}  # fmt: skip
"""How a check can be told."""
