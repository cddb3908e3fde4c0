"""`stallbook convert`: a log in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallbook.cli.common import Force

__all__ = ["convert"]


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A log of any format that stallbook reads.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The new log; its suffix names the format.")],
    force: Force = False,
) -> None:
    """Write a log in another format: .stall (a bundle) or .jsonl (the interchange format)."""
    from stallbook.log import open_run, write

    write(open_run(source), target, force=force)
    typer.echo(f"wrote {target}", err=True)
