"""`stallbook gaps`: every gap with its parts, as a table for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallbook.cli.common import Baseline, Force, Rules, partition_of, wrote

__all__ = ["gaps"]


def gaps(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A log of any format that stallbook reads.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The table: .parquet, .csv or .jsonl by its suffix.")
    ],
    rules: Rules = "full",
    baseline: Baseline = None,
    force: Force = False,
) -> None:
    """Write a row a gap: who waited, when, how long, and every cause's part in ns."""
    from stallbook.cli.patience import patience
    from stallbook.frames import check_format, write
    from stallbook.report import words
    from stallbook.report.files import refuse_existing, whole_file

    refuse_existing(out, force=force)
    check_format(out)
    with patience("writing the table"):
        partition = partition_of(run, rules, baseline)
        with whole_file(out, force=force) as part:
            written = write(partition, part, out.suffix)
    wrote(out, words.many(written, "gap"))
