"""Tells on stderr how a study goes on: a bar with the time left where someone watches, a line per finished run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from stallbook.study.layout import wrapped
from stallbook.study.plan import Cell

__all__ = ["Bar", "Estimate", "duration"]

_DRAW_S = 1.0
_START_S = 10.0
"""What a run takes beyond its arrivals (start-up, draining, analysis) until one has shown it."""


def duration(seconds: float) -> str:
    """A time left, no finer than it deserves."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass
class Estimate:
    """How long is left, from the runs that this call has finished."""

    seconds: float
    total: int = 0
    done: int = 0
    timed: int = 0
    spent: float = 0.0

    @property
    def per_cell(self) -> float:
        """What a cell takes."""
        return self.spent / self.timed if self.timed else self.seconds + _START_S

    def finish(self, seconds: float) -> None:
        """A cell took so long."""
        self.done, self.timed, self.spent = self.done + 1, self.timed + 1, self.spent + seconds

    def left(self, in_cell: float = 0.0) -> float:
        """Seconds left, `in_cell` seconds into a cell. A cell that overruns has nothing left, not less."""
        waiting = self.total - self.done
        return max(0.0, waiting * self.per_cell - min(in_cell, self.per_cell)) if waiting else 0.0

    def fraction(self, in_cell: float) -> float:
        """How much of the running cell is behind."""
        return min(0.99, in_cell / self.per_cell)


class Bar:
    """A watcher that draws. It has no thread of its own: nothing runs beside the engine that is being measured."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console = console
        self._estimate = Estimate(seconds)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("ladder", total=None, left="")
        self._drawn = 0.0

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def calibrating(self, number: int, of: int) -> None:
        """The rate is being measured."""
        self._draw(f"measuring the rate, {number} of {of}", 0)

    def planned(self, header: Mapping[str, Any], done: int, total: int, lost: int) -> None:
        """The study is about to run."""
        self._estimate.total, self._estimate.done = total, done
        if lost:
            runs = "run has a log that does" if lost == 1 else "runs have logs that do"
            self._say(f"{lost} finished {runs} not open: redone")
        if done < total:
            kept = f"{done} of {total} runs are done; " if done else ""
            left = duration(self._estimate.left())
            self._say(f"{kept}{total - done} to go at {header['rate']:.3g} requests/s, about {left}")

    def running(self, cell: Cell, seconds: float) -> None:
        """A cell has been running for so long."""
        self._draw(f"{cell.rung.name} seed {cell.seed}", seconds)

    def finished(self, cell: Cell, line: Mapping[str, Any], seconds: float) -> None:
        """A cell is done."""
        self._estimate.finish(seconds)
        e, itl = self._estimate, line["post"]["itl_ms"]
        shown = ", ".join(f"{name} {itl[key]:.1f}" for name, key in _SHOWN.items() if itl.get(key) is not None)
        left = f"; {duration(e.left())} left" if e.left() else ""
        self._say(f"{e.done:>3}/{e.total} {cell.rung.name}, seed {cell.seed}: {shown or 'no gaps'} (ms){left}")

    def _draw(self, text: str, in_cell: float) -> None:
        """At most once a second: drawing takes time on a core that the tokenizer of a run may want."""
        now = time.monotonic()
        if now - self._drawn < _DRAW_S:
            return
        self._drawn = now
        e = self._estimate
        left = f"about {duration(e.left(in_cell))} left" if e.total else ""
        done = e.done + e.fraction(in_cell)
        self._progress.update(self._task, description=text, total=e.total or None, completed=int(done), left=left)
        self._progress.refresh()

    def _say(self, text: str) -> None:
        self._console.print(wrapped(text), highlight=False, markup=False, soft_wrap=True)


_SHOWN = {"p50": "p50", "p99": "p99", "p99.9": "p999", "max": "max"}
