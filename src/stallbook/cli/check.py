"""`stallbook check`: hold runs against limits, for a pipeline; exit code 1 where one does not hold."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from stallbook.cli.common import PLAIN, Baseline, Boundary, Force, Rules, deliver, wrote
from stallbook.cli.sides import Allow, TwoSides, allowed, samples
from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.check import Checked, Limit, Regression

__all__ = ["COMMAND", "check"]

COMMAND: Final = TwoSides
DOES_NOT_HOLD: Final = 1


def check(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="The runs to check; several are checked as one.")],
    most: Annotated[
        list[str] | None,
        typer.Option("--max", metavar="FIGURE=VALUE", help="A figure may be at most this; may be repeated."),
    ] = None,
    least: Annotated[
        list[str] | None,
        typer.Option("--min", metavar="FIGURE=VALUE", help="A figure must be at least this; may be repeated."),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", metavar="RUN...", help="Earlier runs, than which these may not be worse."),
    ] = None,
    worse: Annotated[
        list[str] | None,
        typer.Option(
            "--max-regression",
            metavar="[FIGURE=]CHANGE",
            help="How much worse a figure may be than in the runs of --against; 10% unless given.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="A change over its limit fails even if it is not resolved from noise.")
    ] = False,
    allow: Allow = None,
    rules: Rules = "full",
    boundary: Boundary = "engine",
    form: Annotated[
        Literal["text", "json", "junit", "markdown"],
        typer.Option("--format", help="For people, for programs, for test reports, or for a pull request."),
    ] = "text",
    baseline: Baseline = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to a file; the text goes to stdout as well.")
    ] = None,
    summary: Annotated[
        Path | None, typer.Option("--summary", metavar="FILE", help="Append the Markdown summary to a file.")
    ] = None,
    force: Force = False,
) -> None:
    """Hold runs against limits and say which do not hold; exit code 1 if any does not."""
    from stallbook.report.checked import FORMATS
    from stallbook.report.files import refuse_existing

    limits, changes = _demands(most or [], least or [], against or [], worse or [])
    if out is not None:
        refuse_existing(out, force=force)
    checked = _check(runs, against or [], limits, changes, strict, allow, rules, boundary, baseline)
    if out is not None:
        deliver(FORMATS[form](checked), out, force=force)
    if summary is not None:
        with summary.open("a", encoding="utf-8", errors=PLAIN) as file:
            file.write(FORMATS["markdown"](checked))
        wrote(summary)
    with suppress(BrokenPipeError):  # whether it holds does not depend on who reads it
        sys.stdout.write(FORMATS["text" if out is not None else form](checked))
    if not checked.passed:
        raise typer.Exit(DOES_NOT_HOLD)


def _demands(
    most: list[str], least: list[str], against: list[Path], worse: list[str]
) -> tuple[list[Limit], list[Regression]]:
    """What is asked, read before any log is."""
    from stallbook.check import parse_limit, parse_regressions
    from stallbook.check.limits import DEFAULT_REGRESSION

    limits = [*(parse_limit(text, "max") for text in most), *(parse_limit(text, "min") for text in least)]
    if worse and not against:
        raise StallbookError("no-baseline", "--max-regression needs runs to compare with", "name them with --against")
    changes = parse_regressions(worse or [DEFAULT_REGRESSION]) if against else []
    if not limits and not changes:
        raise StallbookError("no-limit", "nothing is asked of the runs", "add --max itl.p99=50ms, --min or --against")
    return limits, changes


def _check(
    runs: list[Path], against: list[Path], limits: list[Limit], changes: list[Regression], strict: bool,
    allow: str | None,
    rules: Literal["full", "post"], boundary: Literal["engine", "frontend", "client"], baseline: str | None,
) -> Checked:  # fmt: skip
    from stallbook.check import check
    from stallbook.cli.patience import patience
    from stallbook.compare import compare_samples
    from stallbook.compare.alike import known_keys

    keys = known_keys(allowed(allow))
    with patience("checking") as tell:
        every = samples([*runs, *against], rules, boundary, baseline, tell)
        now, before = every[: len(runs)], every[len(runs) :]
        comparison = compare_samples(now, before, allow=keys) if before else None
    return check(now, limits, comparison, changes, allow=keys, strict=strict)
