"""`stallbook report`: which causes own the tail of one run or many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from stallbook.cli.common import PLAIN, Baseline, Force, Rules, partition_of

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Logs of any format that stallbook reads.")],
    rules: Rules = "full",
    boundary: Annotated[
        Literal["engine", "frontend", "client"],
        typer.Option("--boundary", help="Whose gaps: the engine's, or those of its tokens' deliveries further on."),
    ] = "engine",
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="For people, or for programs.")] = "text",
    baseline: Baseline = None,
    brief: Annotated[bool, typer.Option("--brief", help="One line a run.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file, not to stdout.")] = None,
    force: Force = False,
) -> None:
    """Print which causes own the tail of each run, and what supports that."""
    from stallbook.report import jsonout, model, text
    from stallbook.report.files import refuse_existing, whole_file

    if out is not None:
        refuse_existing(out, force=force)
    drawn = list(model.reports((partition_of(run, rules, baseline) for run in runs), boundary))
    if out is None and form == "text":
        return text.show(drawn, brief=brief)
    told = jsonout.dumps(drawn) if form == "json" else text.dumps(drawn, brief=brief)
    if out is None:
        sys.stdout.write(told)
        return None
    with whole_file(out, force=force) as part:
        part.write_text(told, encoding="utf-8", errors=PLAIN)
    return None
