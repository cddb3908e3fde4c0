"""`stallbook ladder`: the demonstrator's seven rungs, each keeping the fixes below it, and what each one moved."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stallbook.cli.common import wrote
from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.demo import Settings
    from stallbook.study.run import Spec, Tools

__all__ = ["ladder"]

QUICK_SEEDS, QUICK_SECONDS = "1", 15.0
FULL_SEEDS, FULL_SECONDS = "1-5", 60.0


def ladder(
    seeds: Annotated[
        str | None, typer.Option(metavar="A-B,...", help="Seeds, a range or a list; 1-5 unless given.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="X", min=1, help="How long requests arrive in a run; 60 unless given.")
    ] = None,
    rungs: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these rungs; each still keeps every fix below it.")
    ] = None,
    rate: Annotated[
        str, typer.Option(metavar="auto|N", help="Requests a second for all runs; auto measures the machine once.")
    ] = "auto",
    overload: Annotated[
        float | None, typer.Option(metavar="FACTOR", help="Run at FACTOR times the measured rate: past capacity.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed of 15 s: a look, no evidence.")] = False,
    rules: Annotated[
        Literal["post", "full"], typer.Option("--rules", help="Causes in the tables; the results hold both.")
    ] = "post",
    normalise: Annotated[
        bool, typer.Option("--normalise/--no-normalise", help="Print the normalised tables, too; files hold both.")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The study's folder, ./ladder unless given; an unfinished study there is resumed."
        ),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option("--tables", metavar="DIR", help="Print the tables of a study; run nothing.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Throw the study in the folder away and start over.")] = False,
) -> None:
    """Run the fix ladder on the demonstrator and print which rung moved which number.

    Interrupted, it keeps every finished run; the same command resumes.
    """
    if tables is not None:
        print_tables(tables, rules, normalise)
        return
    spec = _spec(seeds, seconds, rungs or "", rate, overload, quick)
    name = "ladder" + ("-quick" if quick else "") + ("-overload" if overload is not None else "")
    where = Path(name) if out is None else out
    _run(spec, where, force=force, rules=rules)
    print_tables(where, rules, normalise)
    wrote(where, "the logs, results.jsonl and tables.txt, .md, .json")


def print_tables(where: Path, rules: str, normalise: bool) -> None:
    """Print the tables of a finished or partial study."""
    from stallbook.study.folder import read_study
    from stallbook.study.tables import build, to_text

    sys.stdout.write(to_text(build(*read_study(where), rules), show_normalised=normalise))


def _spec(seeds: str | None, seconds: float | None, rungs: str, rate: str, overload: float | None, quick: bool) -> Spec:
    from stallbook.study.plan import parse_seeds
    from stallbook.study.run import Spec
    from stallbook.study.rungs import choose

    return Spec(
        rungs=choose(rungs.split(",")),
        seeds=parse_seeds(seeds or (QUICK_SEEDS if quick else FULL_SEEDS)),
        seconds=seconds or (QUICK_SECONDS if quick else FULL_SECONDS),
        rate=_rate(rate),
        overload=_overload(overload, rate),
        calibrations=1 if quick else 3,
    )


def _rate(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1000:
        raise StallbookError(
            "bad-rate", f"--rate {text!r} is no arrival rate", "write auto, or requests a second up to 1000"
        )
    return value


def _overload(factor: float | None, rate: str) -> float | None:
    if factor is None:
        return None
    if rate != "auto":
        raise StallbookError("bad-rate", "--overload and --rate both set the rate", "give one of the two")
    if not 1 < factor <= 20:
        raise StallbookError(
            "bad-rate", f"--overload {factor:g} is no factor past capacity", "give 1 to 20, such as 1.5"
        )
    return factor


def _run(spec: Spec, where: Path, *, force: bool, rules: str) -> None:
    from rich.console import Console

    from stallbook.study.folder import Folder
    from stallbook.study.progress import Bar
    from stallbook.study.run import execute
    from stallbook.study.tables import write

    console = Console(stderr=True)
    with Folder.claim(where, force=force) as folder:
        try:
            with Bar(console, spec.seconds) as bar:
                header = execute(spec, folder, _tools(), bar)
        except KeyboardInterrupt:
            done, total = len(folder.results()), len(spec.rungs) * len(spec.seeds)
            told = f"interrupted; {done} of {total} runs are kept in {where}, the same command resumes"
            console.print(told, soft_wrap=True, markup=False, highlight=False)
            raise typer.Exit(130) from None
        finally:
            folder.tidy()
        write(folder, header, rules)


def _tools() -> Tools:
    import stallbook as sb
    from stallbook.cli.child import run_child
    from stallbook.report.jsonout import run_object
    from stallbook.report.model import build
    from stallbook.study.drift import probe_summary
    from stallbook.study.run import Tools

    def launch(settings: Settings, log: Path, tick: Callable[[float], None] | None) -> None:
        started = time.monotonic()
        summary = run_child(settings, log, lambda _: tick(time.monotonic() - started) if tick else None)
        if summary.get("interrupted"):
            raise KeyboardInterrupt

    def analyse(log: Path) -> dict[str, Any]:
        run = sb.open(log)
        reports = {rules: run_object(build(sb.partition(run, rules=rules))) for rules in ("post", "full")}
        return {**reports, "probe": probe_summary(run.probes.ns)}

    def opens(log: Path) -> bool:
        try:
            sb.open(log)
        except (StallbookError, OSError):
            return False
        return True

    def rate_of(log: Path) -> float:
        return float(sb.open(log).config["rate"])

    return Tools(launch, rate_of, analyse, opens)
