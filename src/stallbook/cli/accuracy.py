"""`stallbook accuracy`: faults with known answers are planted, and the attribution is scored against them."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from stallbook.cli.common import Force, wrote
from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.inject import Task
    from stallbook.inject.score import Score
    from stallbook.inject.truth import Truth

__all__ = ["accuracy"]

UNMEASURED, INTERRUPTED = 1, 130
SUMMARIES: Final = ("accuracy.json", "accuracy.txt")


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
    with _folder(out, tasks, force=force) as folder:
        try:
            with _meter(tasks) as tell:
                for number, task in enumerate(tasks):
                    found, scores[task.seed] = _measured(folder, task, partial(tell, number), rules)
                    unavailable.update(found.unavailable)
                    failed.update(found.failed)
            told = to_object(scores, unavailable, failed)
            drawn, program = to_text(told), json.dumps(told, indent=2) + "\n"
            if out is not None:
                _keep(folder, dict(zip(SUMMARIES, (program, drawn), strict=True)))
        except KeyboardInterrupt:
            typer.echo(f"stallbook: interrupted{_finished(out, tasks)}", err=True)
            return INTERRUPTED
    sys.stdout.write(program if form == "json" else drawn)
    if out is not None:
        wrote(out)
    return _judged(told)


def _judged(told: Mapping[str, Any]) -> int:
    """Say where there is no score, and what to do. Where nothing at all was judged, nothing was measured."""
    if not told["unjudged"]:
        return 0
    what = f"no gap could be judged of {', '.join(told['unjudged'])}: no macro F1"
    typer.echo(f"stallbook: {what}; plant more --faults or --seeds, and run nothing else meanwhile", err=True)
    return 0 if told["worst"] else UNMEASURED


def _measured(
    folder: Path, task: Task, tick: Callable[[int], None], rules: Literal["full", "post"]
) -> tuple[Truth, Score]:
    """Plant, and score what was planted."""
    from stallbook.cli.common import partition_of
    from stallbook.inject.score import score
    from stallbook.inject.truth import Truth

    log, truth = _whole(folder, task)
    with _unfinished(folder, task) as parts:
        _plant(task, *parts, tick)
        for part, whole in zip(reversed(parts), (truth, log), strict=True):  # a log that is there has its truth
            part.rename(whole)
    found = Truth.load(truth)
    return found, score(found, partition_of(log, rules, None))


def _plant(task: Task, log: Path, truth: Path, tick: Callable[[int], None]) -> None:
    """One run in a process of its own."""
    from stallbook.cli.child import run_command

    command = [sys.executable, "-m", "stallbook.inject", "--task", task.to_json()]
    told = run_command(
        [*command, "--log", str(log), "--truth", str(truth)], 1, lambda line: tick(int(line.get("planted", 0)))
    )
    if told.get("interrupted"):
        raise KeyboardInterrupt


def _whole(folder: Path, task: Task, part: str = "") -> tuple[Path, Path]:
    """Where the log and the truth of a run lie."""
    name = f"seed-{task.seed}{part}"
    return folder / f"{name}.stall", folder / f"{name}.truth.json"


@contextmanager
def _unfinished(folder: Path, task: Task) -> Iterator[tuple[Path, Path]]:
    """Names for the run that is going on, such as no finished one has. Nothing stays under them, a crash apart."""
    log, truth = _whole(folder, task, ".part")
    _remove(log, truth)
    try:
        yield log, truth
    finally:
        _remove(log, truth)


@contextmanager
def _folder(out: Path | None, tasks: list[Task], *, force: bool) -> Iterator[Path]:
    """Where the runs go: a folder that stays, or one that does not."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="stallbook-") as name:
            yield Path(name)
        return
    from stallbook.report.files import refuse_existing

    out.mkdir(parents=True, exist_ok=True)
    runs = [_whole(out, task) for task in tasks]
    logs, files = [log for log, _ in runs], [*(truth for _, truth in runs), *(out / name for name in SUMMARIES)]
    for log in logs:
        if os.path.lexists(log):
            if not force:
                raise StallbookError("exists", "is there already", "choose another folder, or add --force", str(log))
            if log.is_symlink() or not (log / "manifest.json").is_file():
                raise StallbookError("not-a-log", "is no log of stallbook, so it stays", "remove it", str(log))
    for file in files:
        refuse_existing(file, force=force)
    _remove(*logs, *files)
    yield out


def _remove(*places: Path) -> None:
    import shutil

    for place in places:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def _keep(folder: Path, texts: dict[str, str]) -> None:
    from stallbook.report.files import whole_file

    for name, text in texts.items():
        with whole_file(folder / name) as part:
            part.write_text(text, encoding="utf-8")


def _finished(out: Path | None, tasks: list[Task]) -> str:
    """What an interruption leaves, in words."""
    if out is None:
        return ""
    done = sum(_whole(out, task)[0].exists() for task in tasks)
    if not done:
        return "; no run was finished"
    return f"; {done} of {len(tasks)} runs {'is' if done == 1 else 'are'} finished and in {out}"


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
