"""`stallbook study`: what the post asked next, answered from one recorded run by simulation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from stallbook.cli.common import Force, Out, deliver, opened, wrote
from stallbook.errors import StallbookError

__all__ = ["study"]


def study(
    name: Annotated[
        Literal["swap", "watermark", "disaggregate", "floor"],
        typer.Argument(metavar="NAME", help="swap, watermark, disaggregate or floor."),
    ],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The log of one run of the demonstrator.")],
    draws: Annotated[int, typer.Option("--draws", help="Simulations of each point, each with other noise.")] = 3,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same study.")] = 1,
    form: Annotated[
        Literal["text", "json", "png"], typer.Option("--format", help="For people, for programs; its charts.")
    ] = "text",
    out: Out = None,
    force: Force = False,
) -> None:
    """Simulate what another design would have made of a recorded run: a question, its figures, its charts."""
    from stallbook.report.files import refuse_existing

    if out is not None:
        refuse_existing(out, force=force)
    if not 1 <= draws <= 100:
        raise StallbookError("bad-count", f"--draws {draws} is too few or too many", "give 1 to 100")
    if not 0 <= seed < 2**31:
        raise StallbookError("bad-seed", f"--seed {seed} is no seed", "give a whole number from 0 up")
    if form == "png":
        from stallbook.report.html.render import needed

        if out is None and sys.stdout.isatty():
            raise StallbookError("no-file", "--format png is not for a terminal", f"add --out {name}.png")
        needed()
    _write(name, run, draws, seed, form, out, force=force)


def _write(name: str, path: Path, draws: int, seed: int, form: str, out: Path | None, *, force: bool) -> None:
    from stallbook.cli.patience import patience
    from stallbook.predict.model import fit
    from stallbook.predict.studies import STUDIES, Asked

    model = fit(opened(path))
    with patience("simulating"):
        made = STUDIES[name](Asked(model.engine, str(path), draws, seed))
    if form != "png":
        from stallbook.report.studied import dumps

        return deliver(dumps(made, form), out, force=force)
    from stallbook.report.files import whole_file
    from stallbook.report.html.studied import picture

    data = picture(made)
    if out is None:
        sys.stdout.buffer.write(data)
        return None
    with whole_file(out, force=force) as part:
        part.write_bytes(data)
    wrote(out)
    return None
