"""`stallbook report`: which causes own the tail of one run or many."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from stallbook.cli.common import (
    Baseline,
    Boundary,
    Brief,
    Client,
    Force,
    Out,
    Rules,
    Runs,
    deliver,
    every_log,
    partition_of,
    wrote,
)  # fmt: skip
from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.partition import Partition

__all__ = ["report"]

DRAWN: Final = ("html", "png")
"""Formats with charts."""


def report(
    runs: Runs,
    rules: Rules = "full",
    boundary: Boundary = "engine",
    client: Client = None,
    form: Annotated[
        Literal["text", "json", "html", "png"],
        typer.Option("--format", help="For people, for programs, as a page with charts, or as one picture."),
    ] = "text",
    baseline: Baseline = None,
    brief: Brief = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Print which causes own the tail of each run, and what supports that."""
    from stallbook.cli.patience import patience
    from stallbook.report import jsonout, model, text
    from stallbook.report.files import refuse_existing

    if out is not None:
        refuse_existing(out, force=force)
    logs = list(every_log(runs))
    if client is not None and len(logs) > 1:
        raise StallbookError("one-client", "--client belongs to one run", "report each run by itself")
    if form in DRAWN:
        return _draw(logs, rules, boundary, form, baseline, client, out, force=force)
    with patience("reading") as tell:
        drawn = list(model.reports(_opened(logs, rules, baseline, client, tell), boundary))
    if out is None and form == "text":
        return text.show(drawn, brief=brief)
    deliver(jsonout.dumps(drawn) if form == "json" else text.dumps(drawn, brief=brief), out, force=force)
    return None


def _draw(
    logs: list[Path], rules: Any, boundary: Boundary, form: str, baseline: str | None, client: Path | None,
    out: Path | None, *, force: bool,
) -> None:  # fmt: skip
    """Charts: to a file, or to whatever stdout leads to, unless that is a terminal."""
    from stallbook.cli.patience import patience
    from stallbook.report.detail import details
    from stallbook.report.files import whole_file
    from stallbook.report.html.render import needed

    if out is None and sys.stdout.isatty():
        raise StallbookError("no-file", f"--format {form} is not for a terminal", f"add --out report.{form}")
    needed()
    with patience("drawing the report") as tell:
        found = list(details(_opened(logs, rules, baseline, client, tell), boundary))
        if form == "png":
            from stallbook.report.html.picture import picture

            told = picture(found)
        else:
            from stallbook.report.html.page import page

            told = page(found, tell).encode("utf-8", "backslashreplace")
    if out is None:
        sys.stdout.buffer.write(told)
        return
    with whole_file(out, force=force) as part:
        part.write_bytes(told)
    wrote(out)


def _opened(
    logs: list[Path], rules: Any, baseline: str | None, client: Path | None, tell: Callable[[str], None]
) -> Iterator[Partition]:
    """One log at a time."""
    for log in logs:
        tell(log.name)
        yield partition_of(log, rules, baseline, client)
