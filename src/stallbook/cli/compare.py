"""`stallbook compare`: one set of runs against another, with an answer for each figure, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from stallbook.cli.common import Baseline, Boundary, Force, Out, Rules, deliver
from stallbook.cli.sides import Allow, TwoSides, allowed, samples

__all__ = ["COMMAND", "compare"]

COMMAND: Final = TwoSides


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="The runs in question: repeats of one thing.")],
    against: Annotated[
        list[Path],
        typer.Option("--against", metavar="RUN...", help="The runs that they are compared with, likewise."),
    ],
    allow: Allow = None,
    unpaired: Annotated[
        bool, typer.Option("--unpaired", help="Ignore seeds: compare both sides as wholes, not run by run.")
    ] = False,
    rules: Rules = "full",
    boundary: Boundary = "engine",
    form: Annotated[
        Literal["text", "json", "markdown"],
        typer.Option("--format", help="For people, for programs, or for a pull request."),
    ] = "text",
    baseline: Baseline = None,
    out: Out = None,
    force: Force = False,
) -> None:
    """Say of each figure whether it moved from the runs of --against to RUN, or whether chance explains it."""
    from stallbook.cli.patience import patience
    from stallbook.compare import compare_samples
    from stallbook.compare.alike import known_keys
    from stallbook.report import compared, comparejson
    from stallbook.report.files import refuse_existing

    keys = known_keys(allowed(allow))
    if out is not None:
        refuse_existing(out, force=force)
    with patience("comparing") as tell:
        every = samples([*runs, *against], rules, boundary, baseline, tell)
        comparison = compare_samples(every[: len(runs)], every[len(runs) :], allow=keys, paired=not unpaired)
    draw = {"text": compared.dumps, "json": comparejson.dumps, "markdown": compared.as_markdown}[form]
    deliver(draw(comparison), out, force=force)
