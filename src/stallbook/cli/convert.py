"""`stallbook convert`: a log in another format, or as a timeline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from stallbook.cli.common import Baseline, Client, Force, Rules, opened, partition_of

__all__ = ["convert"]


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A log of any format that stallbook reads.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The new log or trace; its suffix names the format.")],
    client: Client = None,
    rules: Rules = "full",
    baseline: Baseline = None,
    force: Force = False,
) -> None:
    """Write a log in another format (.stall, .jsonl), or as a timeline (.perfetto-trace); rules are for the latter."""
    from stallbook.log import write
    from stallbook.report import perfetto
    from stallbook.report.files import refuse_existing, whole_file

    if target.suffix in perfetto.SUFFIXES:
        refuse_existing(target, force=force)
        perfetto.messages()
        partition = partition_of(source, rules, baseline, client)
        with whole_file(target, force=force) as part, _progress() as progress:
            perfetto.write(partition, part, progress)
    else:
        write(opened(source, client), target, force=force)
    typer.echo(f"wrote {target}", err=True)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar, where somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("writing the trace")
        yield lambda done, total: bar.update(task, completed=done, total=total)
