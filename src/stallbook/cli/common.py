"""What several commands share: opening logs, reading a baseline, writing to a terminal or a file."""

from __future__ import annotations

import codecs
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.partition import Partition
    from stallbook.run import ExplicitBaseline, Run

__all__ = [
    "PLAIN", "Baseline", "Boundary", "Brief", "Client", "Force", "Out", "Rules", "Runs", "deliver", "every_log",
    "opened", "partition_of", "read_baseline", "wrote",
]  # fmt: skip

Rules = Annotated[
    Literal["full", "post"],
    typer.Option("--rules", help="Charge every cause, or the seven of the original post by its baseline alone."),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="FIXED,ROW,KV",
        help="What a decode step should cost, in ns: fixed, a row, a KV token; or the same as a JSON object.",
    ),
]
Client = Annotated[
    Path | None,
    typer.Option(
        "--client", metavar="FILE", help="What the client saw of this run: AIPerf's raw export, or lines of JSON."
    ),
]
Boundary = Annotated[
    Literal["engine", "frontend", "client"],
    typer.Option("--boundary", help="Whose gaps: the engine's, or those of its tokens' deliveries further on."),
]
Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Logs of any format that stallbook reads, or a ladder's folder.")
]
Brief = Annotated[bool, typer.Option("--brief", help="One line a run (text).")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file, not to stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]

PLAIN: Final = "stallbook.plain"
"""What an output does with a character that it cannot write, instead of failing."""
_STAND_INS: Final = dict(zip("█▉▊▋▌▍▎▏─━·", "#####|||--.", strict=True))

_LARGEST = 2.0**61
"""As in a log's own baseline."""
_FIELDS = ("fixed_ns", "row_ns", "kv_token_ns")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    """Bars, rules and dots in ASCII, anything else by its number, as JSON writes it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(c) or json.dumps(c)[1:-1] for c in lost), error.end


codecs.register_error(PLAIN, _stand_in)


def deliver(told: str, out: Path | None, *, force: bool) -> None:
    """To stdout, or whole to a file."""
    from stallbook.report.files import whole_file

    if out is None:
        sys.stdout.write(told)
        return
    with whole_file(out, force=force) as part:
        part.write_text(told, encoding="utf-8", errors=PLAIN)
    wrote(out)


def wrote(place: Path, what: str = "") -> None:
    """Say on stderr what a command leaves behind, in the same words for all of them."""
    from stallbook.report.words import plain

    typer.echo(f"wrote {plain(str(place))}{what and f': {plain(what)}'}", err=True)


def opened(path: Path, client: Path | None = None) -> Run:
    """A log of any format, joined to what its client saw, if that is given."""
    from stallbook.cli.reading import reading
    from stallbook.log import open_run

    _no_folder_of_logs(path)
    with reading(path) as progress:
        run = open_run(path, progress)
    if client is None:
        return run
    from stallbook.client import join

    return join(run, client)


def _no_folder_of_logs(path: Path) -> None:
    """A folder with logs in it is none itself: say how to name them."""
    if not path.is_dir() or (path / "manifest.json").is_file():
        return
    for suffix in (".stall", ".jsonl", ".jsonl.gz", ".npz"):
        if logs := sorted(path.glob(f"*{suffix}")):
            one, all_ = logs[0], path / f"*{suffix}"
            remedy = f"name a log in it: {one}; or, where several can be given, all of them: {all_}"
            raise StallbookError("folder-of-logs", "is a folder of logs, not a log", remedy, str(path))


def every_log(paths: list[Path]) -> Iterator[Path]:
    """The logs themselves; a ladder's folder stands for its finished runs, rung by rung from the bottom up."""
    for path in paths:
        if (path / "study.json").is_file():
            from stallbook.study.folder import finished_logs

            yield from finished_logs(path)
        else:
            yield path


def partition_of(
    path: Path, rules: Literal["full", "post"], baseline: str | None, client: Path | None = None
) -> Partition:
    """Open a log of any format and partition its gaps."""
    from stallbook.partition import partition

    explicit = read_baseline(baseline)
    return partition(opened(path, client), rules, explicit)


def read_baseline(text: str | None) -> ExplicitBaseline | None:
    """`FIXED,ROW,KV` or a JSON object with the same three fields; what is left out is 0."""
    if text is None:
        return None
    from stallbook.run import ExplicitBaseline

    try:
        told: Any = (
            json.loads(text) if text.lstrip().startswith("{") else dict(zip(_FIELDS, _numbers(text), strict=False))
        )
        if set(told) - set(_FIELDS):
            raise ValueError
        given = [told.get(name, 0) for name in _FIELDS]
        values = [math.nan if isinstance(value, bool) else float(value) for value in given]
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        values = [math.nan]
    if not all(abs(value) <= _LARGEST for value in values):
        raise StallbookError(
            "bad-baseline",
            f"--baseline {text!r:.80} is not three finite numbers of nanoseconds",
            f"write FIXED,ROW,KV in ns, or a JSON object of {', '.join(_FIELDS)}",
        )
    return ExplicitBaseline(*values)


def _numbers(text: str) -> list[float]:
    numbers = [float(part) for part in text.split(",")]
    if len(numbers) > len(_FIELDS):
        raise ValueError
    return numbers
