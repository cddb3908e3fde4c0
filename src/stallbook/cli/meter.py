"""Progress of a run of the demonstrator on stderr: a bar with live figures, or a line a phase where nobody watches."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["meter"]

WINDOW_S = 2.0
"""Tokens a second are taken over this long."""

_PHASE = {
    "starting": "starting (heap, tokenizer, model)",
    "calibrating": "measuring this machine",
    "serving": "serving",
    "draining": "draining the queue",
}


@contextmanager
def meter(seconds: float) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """What to call with each tick of a run that takes about `seconds`."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[live]}")
    # The engine is timed while this runs, so it draws seldom.
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2, transient=True) as bar:
        task = bar.add_task(_PHASE["starting"], total=seconds, live="")
        speed = _Speed()

        def tick(told: Mapping[str, Any]) -> None:
            phase, elapsed = str(told.get("phase")), float(told.get("elapsed", 0.0))
            bar.update(
                task,
                description=_PHASE.get(phase, phase),
                completed=min(elapsed, seconds),
                live=_live(told, speed(elapsed, int(told.get("tokens", 0)))) if elapsed else "",
            )

        yield tick


def _live(told: Mapping[str, Any], rate: float | None) -> str:
    left = max(0.0, float(told.get("total", 0)) - float(told.get("elapsed", 0)))
    clock = f"{left:.0f} s left" if told.get("phase") == "serving" else ""
    speed = f"{rate:,.0f} tokens/s" if rate is not None else ""
    queue = f"{told.get('running', 0)} running, {told.get('waiting', 0)} waiting"
    return "  ".join(part for part in (clock, speed, queue) if part)


class _Speed:
    """Tokens a second over the last moments."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def __call__(self, elapsed: float, tokens: int) -> float | None:
        self._seen.append((elapsed, tokens))
        while elapsed - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()
        (t0, n0), (t1, n1) = self._seen[0], self._seen[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else None


def _lines() -> Callable[[Mapping[str, Any]], None]:
    seen: set[str] = set()

    def tick(told: Mapping[str, Any]) -> None:
        phase = str(told.get("phase"))
        if phase not in seen:
            seen.add(phase)
            print(f"{_PHASE.get(phase, phase)} ...", file=sys.stderr, flush=True)

    return tick
