"""`stallbook demo`: a serving engine on this machine's CPU, watched for a minute, then its report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stallbook.cli.common import Force
from stallbook.errors import StallbookError

__all__ = ["demo"]

INTERRUPTED = 130
_DEFAULT_FOLDER = Path("out")


def demo(
    seconds: Annotated[float, typer.Option(help="How long requests arrive.")] = 60.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests.")] = 1,
    rate: Annotated[
        str, typer.Option(metavar="auto|N", help="Requests a second; auto measures this machine first.")
    ] = "auto",
    max_num_seqs: Annotated[int, typer.Option(help="Sequences that may run at once.")] = 48,
    token_budget: Annotated[int, typer.Option(help="Tokens of a step: decodes first, prefill with the rest.")] = 2048,
    capture_sizes: Annotated[
        str, typer.Option(metavar="N,N,...", help="Batch sizes with a captured decode path, or none.")
    ] = "1,2,4,8,16,24,32",
    kv_blocks: Annotated[int, typer.Option(help="Blocks of 16 tokens in the KV pool.")] = 1000,
    preemption: Annotated[
        Literal["swap", "recompute"], typer.Option(help="Copy an evicted cache out and back, or drop and redo it.")
    ] = "swap",
    admit_watermark: Annotated[float, typer.Option(help="Admit only while this fraction of the pool is free.")] = 0.0,
    admit_by: Annotated[
        Literal["free", "forecast"], typer.Option(help="That fraction of now, or of the fullest moment to come.")
    ] = "free",
    decode_weight: Annotated[float, typer.Option(help="What a decode takes of the budget, in prompt tokens.")] = 1.0,
    context_weight: Annotated[
        float, typer.Option(help="What a prompt token takes more of it for each token before it.")
    ] = 0.0,
    gc_freeze: Annotated[bool, typer.Option("--gc-freeze", help="Freeze the start-up heap before serving.")] = False,
    compact_history: Annotated[
        bool, typer.Option("--compact-history", help="Keep tokens in a flat array, not as objects.")
    ] = False,
    tokenize: Annotated[
        Literal["loop", "process"], typer.Option(help="Tokenize on the engine loop, or in a process of its own.")
    ] = "loop",
    tokenizer_cpus: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="CPUs for that process.", show_default=False)
    ] = None,
    tokenizer_nice: Annotated[int, typer.Option(help="How far that process steps back for others, up to 19.")] = 0,
    blas_threads: Annotated[int, typer.Option(help="Threads of the matrix products.")] = 1,
    record: Annotated[bool, typer.Option("--record/--no-record", help="Leave a log and report on it, or not.")] = True,
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="For people, or for programs.")] = "text",
    out: Annotated[
        Path | None,
        typer.Option(metavar="NAME.stall", help="Where to leave the log. [default: out/demo-N.stall, the next free]"),
    ] = None,
    force: Force = False,
) -> int:
    """Serve generated requests on this machine's CPU, log every step, and report what owns the tail."""
    from stallbook.demo import Settings

    settings = Settings(
        seconds=seconds, seed=seed, rate=_rate(rate), max_num_seqs=max_num_seqs, token_budget=token_budget,
        capture_sizes=_integers("--capture-sizes", capture_sizes), kv_blocks=kv_blocks, preemption=preemption,
        admit_watermark=admit_watermark, admit_by=admit_by, decode_weight=decode_weight,
        context_weight=context_weight, gc_freeze=gc_freeze, compact_history=compact_history, tokenize=tokenize,
        tokenizer_cpus=_integers("--tokenizer-cpus", tokenizer_cpus) if tokenizer_cpus else None,
        tokenizer_nice=tokenizer_nice, blas_threads=blas_threads, record=record,
    )  # fmt: skip
    if not record:
        return _tell(_run(settings, None), None, form)
    log = out or _next_free(_DEFAULT_FOLDER)
    with _room_for(log, force=force):
        return _tell(_run(settings, log), log, form)


def _run(settings: Any, log: Path | None) -> dict[str, Any]:
    from stallbook.cli.child import run_child
    from stallbook.cli.meter import meter

    try:
        with meter(settings.seconds) as tick:
            return run_child(settings, log, tick)
    except StallbookError as error:
        if log is None or not (left := _left(log)) or str(log) in error.remedy:
            raise
        raise StallbookError(error.slug, f"{error.what}; {left}", error.remedy, error.where) from None


def _left(log: Path) -> str:
    """What a run that failed has left. A log in which there is nothing is no use to anyone, and goes."""
    import shutil

    from stallbook.log import open_run
    from stallbook.log.bundle_files import foreign

    if not log.is_dir():
        return ""
    try:
        if len(open_run(log).steps.id):
            return f"what was recorded until then is in {log} and can be read"
    except StallbookError:
        pass  # not even begun
    with suppress(OSError):
        if not foreign(log):
            shutil.rmtree(log)
            return "nothing was recorded"
    return f"what is in {log} cannot be read"


def _tell(summary: dict[str, Any], log: Path | None, form: str) -> int:
    """The report on stdout, and where the log is; what a program reads gets nothing but the report."""
    kept = log is not None and log.exists()
    if summary.get("interrupted"):
        where = f"what was recorded is in {log}" if kept else "nothing was recorded yet"
        typer.echo(f"stallbook: interrupted; {where}", err=True)
        return INTERRUPTED
    if log is None:
        typer.echo(json.dumps(summary, indent=2) if form == "json" else _lines(summary))
        return 0
    from stallbook.cli.common import partition_of, wrote
    from stallbook.cli.patience import patience
    from stallbook.report import build, jsonout, text

    with patience("reading the log"):
        drawn = [build(partition_of(log, "full", None))]
    if form == "json":
        sys.stdout.write(jsonout.dumps(drawn))
    else:
        text.show(drawn)
        typer.echo(f"\n{_lines(summary)}")
    wrote(log, f"stallbook report {log}")
    return 0


def _lines(summary: dict[str, Any]) -> str:
    """The rate that was served, where it came from, and what it left behind."""
    from stallbook.report import words
    from stallbook.report.lines import wrapped

    told = f"Served {summary['rate']:.3g} requests/s"
    if summary.get("capacity"):
        told += f", {summary['load']:.0%} of this machine's measured {summary['capacity']:,.0f} tokens/s"
    served = f"{words.many(summary['finished'], 'request')}, {words.many(summary['tokens'], 'token')}"
    told += f": {served} in {summary['wall_s']:.1f} s."
    if summary.get("unfinished"):
        left = words.many(summary["unfinished"], "request")
        told += f" Past capacity: not finished when the run was ended: {left}."
    return "\n".join(wrapped(told))


def _next_free(folder: Path) -> Path:
    taken = [path.name for path in folder.glob("demo-*.stall")] if folder.is_dir() else []
    numbers = [int(name[5:-6]) for name in taken if name[5:-6].isdecimal()]
    return folder / f"demo-{max(numbers, default=0) + 1}.stall"


@contextmanager
def _room_for(log: Path, *, force: bool) -> Iterator[None]:
    """Move an older log aside while its successor is written; put it back if there is none, else delete it."""
    import shutil

    if not (log.exists() or log.is_symlink()):
        yield
        return
    if not force:
        raise StallbookError("exists", "is there already", "choose another name, or add --force", str(log))
    from stallbook.log.bundle_files import check_ours

    check_ours(log)
    aside = log.with_name(f".{log.name}.old")
    if aside.exists():
        raise StallbookError("exists", "is left over from an interrupted run", "remove it", str(aside))
    log.rename(aside)
    try:
        yield
    finally:
        if log.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            with suppress(OSError):
                aside.rename(log)


def _rate(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise StallbookError(
            "bad-rate", f"--rate {text!r} is not a number", "write auto, or requests a second"
        ) from None


def _integers(flag: str, text: str) -> tuple[int, ...]:
    if text.strip().lower() in ("", "none"):
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise StallbookError(
            "bad-list", f"{flag} {text!r} is not a list of whole numbers", "write them as 1,2,4"
        ) from None
