"""Puts the commands together, runs one, and turns whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from stallbook import __version__
from stallbook.cli.common import PLAIN
from stallbook.errors import StallbookError
from stallbook.report.files import remedy

__all__ = ["COMMANDS", "app", "run"]

COMMANDS: Final = (
    "demo", "ladder", "attach", "report", "compare", "check", "advise", "predict", "study", "gaps", "convert",
    "accuracy",
)  # fmt: skip
"""Each is a module beside this one with a function of the same name. What is not installed is not offered."""

BAD_INPUT, INTERRUPTED = 2, 130
_ClickError: Final[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stallbook {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """A logbook for LLM serving engines: which causes own the tail of the gaps between tokens."""


def app() -> typer.Typer:
    """The application with every command that is there."""
    typed = typer.Typer(
        name="stallbook", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, callback=_top
    )
    for name in COMMANDS:
        module = f"stallbook.cli.{name}"
        try:
            home = import_module(module)
            typed.command(name, cls=getattr(home, "COMMAND", None))(getattr(home, name))
        except ModuleNotFoundError as missing:
            if missing.name != module:
                raise
    return typed


def run(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Nothing that a user can cause ends in a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=PLAIN)
    code = 0
    try:
        code = _invoke(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
    except StallbookError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except _ClickError as error:
        return _usage(error)
    except BrokenPipeError:
        return _closed(code)
    except SystemExit as end:  # what Rich, which prints the help, makes of a closed pipe
        if isinstance(end.__context__, BrokenPipeError):
            return _closed()
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{(error.strerror or str(error)).lower()}; {remedy(error)}")
    except MemoryError:
        return _fail("out of memory; give the process more, or a shorter log")
    return code


def _invoke(args: list[str]) -> int:
    """Without the framework's own `main`, which has other ideas about interrupts, closed pipes and exit codes."""
    command: Any = typer.main.get_command(app())
    _plain_flags(command)
    try:
        with command.make_context("stallbook", args) as context:
            code = command.invoke(context)
    except typer.Exit as asked:
        return int(asked.exit_code)
    return code if isinstance(code, int) else 0


def _plain_flags(command: Any) -> None:
    """A flag takes no value: its help says `--each`, where Typer would write `--each <bool>`."""
    for one in (command, *command.commands.values()):
        asks_help = one.get_help_option(one.context_class(one))
        for option in (*one.params, asks_help):
            if getattr(option, "is_flag", False) and option.metavar is None:
                option.metavar = ""


def _fail(message: str, code: int = BAD_INPUT) -> int:
    """One line on stderr, whatever the message holds: file names may contain anything."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    with suppress(OSError, ValueError):  # if nobody listens, the exit code still tells
        print(f"stallbook: {line}", file=sys.stderr)
    return code


def _usage(error: Any) -> int:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "stallbook"
    if type(error).__name__ == "NoArgsIsHelpError":
        if told := str(error.message).strip():  # empty where making the error has printed it
            print(told)
        return BAD_INPUT
    message = " ".join(str(error.format_message()).split()).replace(": Value error, ", ": ")
    return _fail(f"{message.rstrip('.')}; see '{path} --help'")


def _closed(code: int = 0) -> int:
    """The reader of our output went away, as `head` does: no error of ours, and what the command found stays found."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
