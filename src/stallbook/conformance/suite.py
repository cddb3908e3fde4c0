"""The suite: an engine is started again and again, recorded, killed and hindered, and what it wrote is read."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallbook.conformance import evidence
from stallbook.conformance.engine import Engine, Server
from stallbook.conformance.evidence import Check
from stallbook.conformance.hindered import CASES, hindered
from stallbook.conformance.outcome import Finding, Outcome
from stallbook.errors import StallbookError

__all__ = ["PARTS", "conform"]

_MOMENTS: Final = (0.25, 0.5, 0.75)
"""When an engine is killed: after so much of the script's tokens."""
_LOOK_S, _PATIENCE_S = 0.05, 120
_MOST_LINES: Final = 20
"""A recorder that cannot go on says so, and no more than so often."""
_SAYS: Final = "stallbook:"


def conform(
    engine: Engine, folder: Path, *, only: Collection[str] = (), told: Callable[[Finding], None] | None = None
) -> Outcome:  # fmt: skip
    """Put an engine's adapter through the suite, or the parts `only` (see `PARTS`). `folder`: for logs and output.

    `told` is called with each finding as it is made.
    """
    outcome, folder = Outcome(engine.name), folder.absolute()  # the engine may run in a folder of its own
    for name, part in PARTS.items():
        if only and name not in only:
            continue
        home = folder / name
        home.mkdir(parents=True, exist_ok=True)
        try:
            for finding in part(engine, home):
                outcome.findings.append(finding)
                if told is not None:
                    told(finding)
        except Exception as error:
            outcome.findings.append(Finding(name, "the suite itself", False, _raised(error)))
            if told is not None:
                told(outcome.findings[-1])
    return outcome


def _raised(error: Exception) -> str:
    """What was raised, and the line that it came from."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {error}"[:300] + f" ({Path(last.filename).name}:{last.lineno})"


def _heard(server: Server) -> list[str]:
    """What the recorders and the hooks said on stderr: each line once."""
    lines = (line[line.index(_SAYS) :] for line in server.said().splitlines() if _SAYS in line)
    return list(dict.fromkeys(lines))


@contextmanager
def _running(engine: Engine, folder: Path, log: Path | None, environment: dict[str, str]) -> Iterator[Server]:
    """The engine, which is gone afterwards."""
    server = engine.start(folder, log, environment)
    try:
        yield server
    finally:
        server.stop()


def _findings(part: str, checks: Iterator[Check]) -> Iterator[Finding]:
    for check in checks:
        yield Finding(part, *check)


def serving(engine: Engine, folder: Path) -> Iterator[Finding]:
    """The script, recorded to its end."""
    asks, log = engine.script.asks(), folder / "out.stall"
    with _running(engine, folder, log, {}) as server:
        answers = server.load(asks, engine.script.at_once)
        own = server.counted()
    heard = _heard(server)

    def checks() -> Iterator[Check]:
        yield evidence.answered(asks, answers)
        try:
            e = evidence.read(log)
        except StallbookError as error:
            yield "a log", False, "; ".join([str(error), *heard[:2]])
            return
        yield from evidence.equal(e, asks, answers, own)
        yield from evidence.exact(e)
        yield from evidence.explained(e, engine.limits)
        yield evidence.account(e, engine.limits)
        yield from evidence.own_words(e, heard)

    yield from _findings("serving", checks())


@dataclass(frozen=True)
class Seen:
    """The last look at a log that is being written: so many tokens, at that time. missed: why there were no more."""

    tokens: int
    at: int
    missed: str = ""


def killed(engine: Engine, folder: Path) -> Iterator[Finding]:
    """SIGKILL in the midst of work: the log opens, and what it holds adds up."""
    asks = engine.script.asks()
    roles: list[str] = []
    for number in itertools.count():
        if roles and number >= max(len(roles), len(_MOMENTS)):
            return
        part = _MOMENTS[number % len(_MOMENTS)]
        home = folder / str(number)
        home.mkdir()
        log = home / "out.stall"
        with _running(engine, home, log, {}) as server:
            roles = roles or sorted(server.pids())
            role = roles[number % len(roles)]
            thread = threading.Thread(target=_load, args=(server, asks, engine.script.at_once), daemon=True)
            thread.start()
            seen = _await(log, part * sum(one.max_tokens for one in asks), thread)
            os.kill(server.pids()[role], signal.SIGKILL)
            at = time.perf_counter_ns()
            time.sleep(0.3)
        thread.join(60)
        yield Finding("killed", f"{role}, after {part:.0%} of the script", *_whole(log, at, seen))


def _await(log: Path, tokens: float, thread: threading.Thread) -> Seen:
    """Until so many tokens stand in the log, which can be read while it is written, or there is no load any more."""
    end, count, at = time.monotonic() + _PATIENCE_S, 0, time.perf_counter_ns()
    while thread.is_alive():
        at = time.perf_counter_ns()
        with suppress(StallbookError):
            count = evidence.tokens(log)
        if count >= tokens and thread.is_alive():
            return Seen(count, at)
        if time.monotonic() > end:
            return Seen(count, at, f"not so far after {_PATIENCE_S} s")
        time.sleep(_LOOK_S)
    return Seen(count, at, "killed at rest, the load was over")


def _load(server: Server, asks: list[object], at_once: int) -> None:
    with suppress(Exception):  # how it ends does not matter
        server.load(asks, at_once)  # type: ignore[arg-type]


def _whole(log: Path, at: int, seen: Seen) -> tuple[bool | None, str]:
    """Whether what a kill at `at` left of a log can be read, how much it is, and how late it came to be there."""
    try:
        e = evidence.read(log)
    except StallbookError as error:
        return False, str(error)
    off = max(p.reconcile.max_error_ns for p in e.partitions)
    negative = sum(p.reconcile.negative_parts for p in e.partitions)
    last = max(int(run.steps.emit.max(initial=0)) for run in e.runs)
    told = [f"{e.gaps:,} gaps, {off} ns off, {negative} negative parts"]
    if e.gaps:
        told.append(f"the last token {abs(at - last) / 1e9:.2f} s {'before' if last < at else 'after'} the kill")
    holds, most = not off and not negative and e.gaps > 0, evidence.allowed_ns(e)
    late = evidence.behind_ns(e, seen.tokens, seen.at)  # while it was written
    if not seen.missed:
        late = max(late, at - last)  # what a kill took is in no log
    if e.gaps and late > most:
        holds = False
        told.append(f"tokens came to be in the log {late / 1e9:.2f} s late, at most {most / 1e9:.2f} s")
    said = "; ".join([seen.missed, *told] if seen.missed else told)
    return (None if holds and seen.missed else holds), said


def hindrance(engine: Engine, folder: Path) -> Iterator[Finding]:
    """Whatever hinders the recorder, the engine answers as ever."""
    asks = engine.script.asks()
    for number, name in enumerate(CASES):
        home = folder / str(number)
        home.mkdir()
        with hindered(name, home) as case:
            if case is None:
                yield Finding("hindered", name, None, "this machine does not allow it")
                continue
            with _running(engine, home, case.log, dict(case.environment)) as server:
                answers = server.load(asks, engine.script.at_once)
                own = server.counted()
            _, held, said = evidence.answered(asks, answers)
            lines = server.said().count(_SAYS)
            got = sum(one.tokens for one in answers)
            held = bool(held) and own.tokens in (None, got)
            held = held and (0 < lines < _MOST_LINES if case.speaks else not lines)
            said += f"; {lines} line{'s' * (lines != 1)} of the recorder's"
            if lines and not held:
                said += f", the first: {_heard(server)[0]}"
            if not case.speaks and case.log is not None:
                held, said = held and not case.log.exists(), f"{said}; no log" if not case.log.exists() else "a log"
            yield Finding("hindered", name, held, said)


PARTS: Final[dict[str, Callable[[Engine, Path], Iterator[Finding]]]] = {
    "serving": serving, "killed": killed, "hindered": hindrance
}  # fmt: skip
"""What is done with an engine: it serves the script; it is killed in its midst; its recorder is hindered."""
