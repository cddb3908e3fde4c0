"""`stallbook accuracy`: faults with known answers are planted, and the attribution is scored against them."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stallbook.cli.common import Force
from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.inject import Task
    from stallbook.inject.score import Score
    from stallbook.inject.truth import Truth

__all__ = ["accuracy"]

INTERRUPTED = 130


def accuracy(
    seeds: Annotated[str, typer.Option(metavar="A-B,...", help="Seeds, a range or a list; one run each.")] = "1-5",
    faults: Annotated[int, typer.Option(min=1, max=10_000, help="Faults of each kind in a run.")] = 40,
    kinds: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these kinds of faults, by name or by cause.")
    ] = None,
    rules: Annotated[
        Literal["full", "post"],
        typer.Option("--rules", help="Score all causes, or show what the seven of the original post make of them."),
    ] = "full",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep each run's log and truth, and accuracy.json and .txt.")
    ] = None,
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="For people, or for programs.")] = "text",
    force: Force = False,
) -> int:
    """Plant faults in the demonstrator at random moments, and score how well their causes are found."""
    from stallbook.inject.report import to_object, to_text
    from stallbook.inject.task import Task, choose
    from stallbook.study.plan import parse_seeds

    chosen = choose((kinds or "").split(","))
    tasks = [Task(seed, faults, chosen) for seed in parse_seeds(seeds)]
    scores: dict[int, Score] = {}
    unavailable: dict[str, str] = {}
    failed = Counter[str]()
    with _folder(out, tasks, force=force) as folder, _meter(tasks) as tell:
        for number, task in enumerate(tasks):
            log, truth = folder / f"seed-{task.seed}.stall", folder / f"seed-{task.seed}.truth.json"
            if not _plant(task, log, truth, partial(tell, number)):
                where = f"; the finished runs are in {folder}" if out else ""
                typer.echo(f"stallbook: interrupted{where}", err=True)
                return INTERRUPTED
            found, scores[task.seed] = _scored(truth, log, rules)
            unavailable.update(found.unavailable)
            failed.update(found.failed)
        told = to_object(scores, unavailable, failed)
        drawn, program = to_text(told), json.dumps(told, indent=2) + "\n"
        if out is not None:
            (folder / "accuracy.txt").write_text(drawn, encoding="utf-8")
            (folder / "accuracy.json").write_text(program, encoding="utf-8")
    sys.stdout.write(program if form == "json" else drawn)
    return 0


def _plant(task: Task, log: Path, truth: Path, tick: Callable[[int], None]) -> bool:
    """One run in a process of its own; False when interrupted."""
    from stallbook.cli.child import run_command

    command = [sys.executable, "-m", "stallbook.inject", "--task", task.to_json()]
    told = run_command(
        [*command, "--log", str(log), "--truth", str(truth)], 1, lambda line: tick(int(line.get("planted", 0)))
    )
    return not told.get("interrupted")


def _scored(truth: Path, log: Path, rules: Literal["full", "post"]) -> tuple[Truth, Score]:
    from stallbook.cli.common import partition_of
    from stallbook.inject.score import score
    from stallbook.inject.truth import Truth

    found = Truth.load(truth)
    return found, score(found, partition_of(log, rules, None))


@contextmanager
def _folder(out: Path | None, tasks: list[Task], *, force: bool) -> Iterator[Path]:
    """Where the runs go: a folder that stays, or one that does not."""
    import shutil

    if out is None:
        with tempfile.TemporaryDirectory(prefix="stallbook-") as name:
            yield Path(name)
        return
    out.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        log = out / f"seed-{task.seed}.stall"
        if log.exists():
            if not force:
                raise StallbookError("exists", "is there already", "choose another folder, or add --force", str(log))
            if not (log / "manifest.json").is_file():
                raise StallbookError("not-a-log", "is no log of stallbook, so it stays", "remove it", str(log))
            shutil.rmtree(log)
    yield out


@contextmanager
def _meter(tasks: list[Task]) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left; a line a run where nobody watches."""
    total, each = sum(task.total for task in tasks), tasks[0].total
    if not sys.stderr.isatty():
        seen: set[int] = set()

        def line(number: int, _done: int) -> None:
            if number not in seen:
                seen.add(number)
                print(f"planting, seed {tasks[number].seed} ...", file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from stallbook.study.progress import duration

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    began = time.monotonic()
    # The engine is timed while this runs, so it draws only when told to.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        row = bar.add_task("starting", total=total, left="")

        def draw(number: int, done: int) -> None:
            completed = number * each + done
            left = (time.monotonic() - began) / max(1, completed) * (total - completed)
            bar.update(
                row,
                description=f"planting, seed {tasks[number].seed}",
                completed=completed,
                left=f"about {duration(left)} left",
            )
            bar.refresh()

        yield draw
