"""One run of the demonstrator in a process of its own.

BLAS reads its thread count when NumPy is first imported, so the environment is set before that process starts.
It has a process group of its own: Ctrl-C reaches us alone, and we ask it once to end at its next step with a whole
log. If we die, it finds its pipe closed and ends as well.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from stallbook.demo import Settings
from stallbook.demo.__main__ import BLAS_VARIABLES
from stallbook.errors import StallbookError

__all__ = ["Tick", "child_command", "run_child", "run_command"]

Tick = Callable[[Mapping[str, Any]], None]


def child_command(settings: Settings, log: Path | None) -> list[str]:
    """The command line of one run."""
    told = json.dumps(settings.as_dict())
    place = [] if log is None else ["--out", str(log)]
    return [sys.executable, "-m", "stallbook.demo", "--settings", told, "--progress", *place]


def run_child(settings: Settings, log: Path | None, tick: Tick) -> dict[str, Any]:
    """Run to its end, or to ours; the summary. On Ctrl-C it says `interrupted`, and the log is closed."""
    return run_command(child_command(settings, log), settings.blas_threads, tick)


def run_command(command: Sequence[str], blas_threads: int, tick: Tick) -> dict[str, Any]:
    """Run a command that prints JSON lines and a last one `{"done": SUMMARY}`."""
    environment = {**os.environ, **dict.fromkeys(BLAS_VARIABLES, str(blas_threads))}
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=said, text=True, start_new_session=True,
        ) as child,
    ):  # fmt: skip
        summary = _follow(child, tick)
        code = child.wait()
        said.seek(0)
        if code not in (0, 130) or (code == 0 and not summary):
            raise _failure(code, said.read())
    return summary if code == 0 else {**summary, "interrupted": True}


def _follow(child: subprocess.Popen[str], tick: Tick) -> dict[str, Any]:
    """Pass on what the child prints until it closes its end. Each Ctrl-C asks it more firmly to end."""
    assert child.stdout is not None
    asked = 0
    while True:
        try:
            return _read(child.stdout, tick)
        except KeyboardInterrupt:
            asked += 1
            child.send_signal(signal.SIGINT if asked < 3 else signal.SIGKILL)
        except BaseException:
            child.send_signal(signal.SIGINT)
            raise


def _read(lines: IO[str], tick: Tick) -> dict[str, Any]:
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue  # not ours: a library that printed something
        if not isinstance(told, dict):
            continue
        if "done" in told:
            return dict(told["done"])
        tick(told)
    return {}


def _failure(code: int, said: str) -> StallbookError:
    """The child's own last line is the error; a death without a word is named by its signal."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if code == 2 and lines:
        what, _, remedy = lines[-1].rpartition("; ")
        return StallbookError("demo", what or remedy, remedy if what else "see stallbook demo --help")
    last = f" ({lines[-1]})" if lines else ""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return StallbookError(
        "demo-died", f"the demonstrator {how}{last}", "see whether the machine has memory and disk left"
    )
