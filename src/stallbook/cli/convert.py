"""`stallbook convert`: a log in another format, or as a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from stallbook.cli.common import Baseline, Client, Force, Rules, opened, partition_of, wrote
from stallbook.errors import StallbookError

__all__ = ["convert"]

LOGS: Final = (".stall", ".jsonl", ".jsonl.gz")
"""Endings of logs; those of a timeline are `perfetto.SUFFIXES`."""


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A log of any format that stallbook reads.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The new log or trace; its suffix names the format.")],
    client: Client = None,
    rules: Rules = "full",
    baseline: Baseline = None,
    force: Force = False,
) -> None:
    """Write a log in another format (.stall, .jsonl), or as a timeline (.perfetto-trace); rules are for the latter."""
    from stallbook.cli.patience import patience
    from stallbook.log import write
    from stallbook.report import perfetto
    from stallbook.report.files import refuse_existing, whole_file

    timeline = target.suffix in perfetto.SUFFIXES
    if not timeline and not target.name.endswith(LOGS):
        endings = ", ".join((*LOGS, *perfetto.SUFFIXES))
        raise StallbookError("suffix", "not a format to write", f"give it one of these endings: {endings}", str(target))
    with patience(f"writing {target.name}") as tell:
        if timeline:
            refuse_existing(target, force=force)
            perfetto.messages()
            partition = partition_of(source, rules, baseline, client)
            with whole_file(target, force=force) as part:
                perfetto.write(partition, part, lambda done, total: tell(f"{done / total:.0%}"))
        else:
            write(opened(source, client), target, force=force)
    wrote(target)
