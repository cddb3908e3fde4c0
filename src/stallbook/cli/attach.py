"""`stallbook attach`: run a program and record the engines that it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.core import TyperCommand

from stallbook.errors import StallbookError

__all__ = ["COMMAND", "attach"]


class _Launcher(TyperCommand):
    """Whatever stands behind the program's name is the program's."""

    allow_interspersed_args = False


COMMAND: Final = _Launcher


def attach(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The program to run, with its arguments, after `--`.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="NAME.stall", help="Where to record; by default where STALLBOOK says."),
    ] = None,
) -> None:
    """Run a program, and record the engines that it or its children start in Python."""
    from stallbook.adapters.attach import launched
    from stallbook.adapters.plugin import VARIABLE

    if out is None and not os.environ.get(VARIABLE):
        raise StallbookError("no-log", "nothing says where to record", f"give --out, or set {VARIABLE}")
    try:
        os.execvpe(command[0], command, launched(dict(os.environ), out))
    except FileNotFoundError:
        told = "is it installed, and on the PATH?"
        raise StallbookError("no-such-command", "no such command", told, command[0]) from None
    except OSError as error:
        told = "is it a program, and may you run it?"
        why = (error.strerror or str(error)).lower()
        raise StallbookError("no-such-command", f"cannot be run: {why}", told, command[0]) from None
