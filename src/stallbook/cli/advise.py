"""`stallbook advise`: what to do about the causes that own the tail, from what the log measured alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from stallbook.cli.common import PLAIN, Baseline, Force, Rules, every_log, partition_of
from stallbook.cli.sides import Boundary

__all__ = ["advise"]


def advise(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Logs of any format that stallbook reads, or a ladder's folder.")
    ],
    rules: Rules = "full",
    boundary: Boundary = "engine",
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="For people, or for programs.")] = "text",
    baseline: Baseline = None,
    brief: Annotated[bool, typer.Option("--brief", help="One line a run (text).")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file, not to stdout.")] = None,
    force: Force = False,
) -> None:
    """Name the fix of each cause that owns over 5% of the tail, with its evidence, its knob and its cost."""
    from stallbook.advise import advise as advise_on
    from stallbook.report.advised import dumps
    from stallbook.report.files import refuse_existing, whole_file

    if out is not None:
        refuse_existing(out, force=force)
    told = dumps(
        [advise_on(partition_of(log, rules, baseline), boundary) for log in every_log(runs)], form, brief=brief
    )
    if out is None:
        sys.stdout.write(told)
        return
    with whole_file(out, force=force) as part:
        part.write_text(told, encoding="utf-8", errors=PLAIN)
