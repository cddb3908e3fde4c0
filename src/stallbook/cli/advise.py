"""`stallbook advise`: what to do about the causes that own the tail, from what the log measured alone."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from stallbook.cli.common import Baseline, Boundary, Brief, Force, Out, Rules, Runs, deliver, every_log, partition_of

__all__ = ["advise"]


def advise(
    runs: Runs,
    rules: Rules = "full",
    boundary: Boundary = "engine",
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="For people, or for programs.")] = "text",
    baseline: Baseline = None,
    brief: Brief = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Name the fix of each cause that owns over 5% of the tail, with its evidence, its knob and its cost."""
    from stallbook.advise import advise as advise_on
    from stallbook.cli.patience import patience
    from stallbook.report.advised import dumps
    from stallbook.report.files import refuse_existing

    if out is not None:
        refuse_existing(out, force=force)
    told = []
    with patience("looking for what to do") as tell:
        for log in every_log(runs):
            tell(log.name)
            told.append(advise_on(partition_of(log, rules, baseline), boundary))
    deliver(dumps(told, form, brief=brief), out, force=force)
