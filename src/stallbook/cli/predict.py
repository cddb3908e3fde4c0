"""`stallbook predict`: what other settings would have given, from one recorded run, without touching the server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stallbook.cli.common import Force, Out, deliver, opened, wrote
from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.predict.answer import Base
    from stallbook.predict.knobs import Change
    from stallbook.predict.pool import Runner
    from stallbook.report.predicted import Told
    from stallbook.run import Run

__all__ = ["predict"]

DRAWN = ("html", "png")


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The log of one run: of the demonstrator, or of vLLM.")],
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting to change; several make one change."),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Every single fix, and the best order of all.")] = False,
    find: Annotated[
        str | None, typer.Option("--find", metavar="GOAL", help='Search for settings, as "itl.p99.9 < 50ms".')
    ] = None,
    trade: Annotated[
        str, typer.Option("--trade", metavar="FIGURE", help="What a search pays least of: ttft, throughput, ...")
    ] = "ttft",
    by: Annotated[
        str, typer.Option("--by", metavar="FIGURE", help="The figure that --each orders the fixes by.")
    ] = "itl.p99.9",
    settings: Annotated[int, typer.Option("--settings", help="How many settings a search looks at.")] = 240,
    replicas: Annotated[int, typer.Option("--replicas", help="Simulations behind an interval.")] = 9,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Answer even where the model misses its own run by too much.")
    ] = False,
    form: Annotated[
        Literal["text", "json", "html", "png"],
        typer.Option("--format", help="For people, for programs; the front of a search as a page or a picture."),
    ] = "text",
    out: Out = None,
    force: Force = False,
) -> None:
    """Predict gaps, first tokens and throughput under other settings, with intervals, beside the ceiling."""
    from stallbook.predict.search import read_goal, trade_figure
    from stallbook.report.files import refuse_existing

    if out is not None:
        refuse_existing(out, force=force)
    goal = read_goal(find) if find is not None else None
    figure = trade_figure(by if goal is None else trade)
    _check(each=each, wanted=bool(change), goal=goal is not None, form=form, out=out)
    if not 2 <= replicas <= 1000 or not 1 <= settings <= 100_000:
        raise StallbookError(
            "bad-count", "too few or too many simulations", "give 2 or more replicas, 1 or more settings"
        )
    log = opened(run)
    wanted = _wanted(log, change or ())
    with _asked(log, _work(goal, settings, replicas, each=each), anyway=anyway) as (base, runner):
        if goal is not None:
            told = _searched(base, runner, goal, figure, wanted, settings, replicas)
        else:
            told = _predicted(base, runner, wanted, figure, replicas, each=each)
    _write(told, form, out, force=force)


def _check(*, each: bool, wanted: bool, goal: bool, form: str, out: Path | None) -> None:
    if each and (wanted or goal):
        raise StallbookError("one-question", "--each stands alone", "leave --set and --find away")
    if not (each or wanted or goal):
        raise StallbookError("no-question", "nothing is asked", "give --set NAME=VALUE, --each or --find GOAL")
    if form in DRAWN:
        from stallbook.report.html.render import needed

        if not goal:
            raise StallbookError("no-front", f"--format {form} draws the front of a search", "add --find GOAL")
        if out is None and sys.stdout.isatty():
            raise StallbookError("no-file", f"--format {form} is not for a terminal", f"add --out front.{form}")
        needed()


def _wanted(log: Run, texts: Sequence[str]) -> Change:
    """The change that is asked for. What is wrong with it is said before anything is fitted."""
    from stallbook.predict.knobs import changed, knobs_of, parse
    from stallbook.predict.model import recorded_settings

    settings = recorded_settings(log)
    wanted = dict(parse(text, knobs_of(settings)) for text in texts)
    changed(settings, wanted)
    return wanted


def _work(goal: Any, settings: int, replicas: int, *, each: bool) -> int:
    """About how many simulations that is."""
    return 9 * (replicas + 1) + 40 if each else (settings if goal else 0) + replicas + 2


@contextmanager
def _asked(log: Run, work: int, *, anyway: bool) -> Iterator[tuple[Base, Runner]]:
    """The model of a run, held against that run, and what simulates it."""
    from stallbook.predict.answer import base_of
    from stallbook.predict.model import model_of
    from stallbook.predict.pool import runner

    with _bar(work) as tick:
        model = model_of(log)
        with runner(model.engine, tick) as run:
            yield base_of(model, run, force=anyway), run


@contextmanager
def _bar(work: int) -> Iterator[Callable[[int], None]]:
    if not sys.stderr.isatty():
        from stallbook.cli.patience import patience

        with patience(f"simulating about {work:,} runs"):
            yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("simulating"), BarColumn(bar_width=32), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=work)
        yield lambda n: bar.advance(task, n)


def _predicted(base: Base, run: Runner, wanted: Any, by: str, replicas: int, *, each: bool) -> Told:
    from stallbook.predict.answer import predict as ask
    from stallbook.predict.knobs import fixes
    from stallbook.predict.search import best_order
    from stallbook.report.predicted import Told

    changes = fixes(base.model.settings) if each else [wanted]
    found = ask(base, changes, run, replicas=replicas)
    return Told(base, found, best_order(base, run, by) if each else None, by, forced=bool(base.refusal))


def _searched(base: Base, run: Runner, goal: Any, trade: str, fixed: Any, settings: int, replicas: int) -> Told:
    from stallbook.predict.answer import predict as ask
    from stallbook.predict.search import search
    from stallbook.report.predicted import Told

    found = search(base, run, goal, trade, count=settings, fixed=fixed)
    best = [] if found.best is None else ask(base, [found.seen[found.best].change], run, replicas=replicas)
    return Told(base, best, None, goal.name, found, forced=bool(base.refusal))


def _write(told: Told, form: str, out: Path | None, *, force: bool) -> None:
    if form not in DRAWN:
        from stallbook.report.predicted import dumps

        return deliver(dumps(told, form), out, force=force)
    from stallbook.report.files import whole_file
    from stallbook.report.html.front import page, picture

    data = picture(told) if form == "png" else page(told).encode("utf-8", "backslashreplace")
    if out is None:
        sys.stdout.buffer.write(data)
        return None
    with whole_file(out, force=force) as part:
        part.write_bytes(data)
    wrote(out)
    return None
