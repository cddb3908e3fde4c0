"""How far the reading of a long log is, on stderr: a bar once it takes longer than a moment, and nothing before."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stallbook.cli.patience import MOMENT_S, current

__all__ = ["reading"]


@contextmanager
def reading(path: Path) -> Iterator[Callable[[int, int], None]]:
    """What to call with the bytes that were read and those there are."""
    if (waiting := current()) is not None:  # the command has a line of its own on stderr
        yield lambda done, total: waiting(f"reading {path.name}, {done / max(1, total):.0%}")
        return
    began = time.monotonic()
    bar: Callable[[int, int], None] | None = None
    with ExitStack() as shown:

        def tell(done: int, total: int) -> None:
            nonlocal bar
            if bar is None and time.monotonic() - began >= MOMENT_S:
                bar = _bar(shown, path)
            if bar is not None:
                bar(done, total)

        yield tell


def _bar(shown: ExitStack, path: Path) -> Callable[[int, int], None]:
    """A bar where somebody watches, else a line."""
    name = "".join(c if c.isprintable() else "?" for c in path.name)[:60]
    if not sys.stderr.isatty():
        print(f"reading {name} ...", file=sys.stderr, flush=True)
        return lambda done, total: None
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    bar = shown.enter_context(Progress(console=Console(stderr=True), transient=True))
    task = bar.add_task(f"reading {escape(name)}")
    return lambda done, total: bar.update(task, completed=done, total=total)
