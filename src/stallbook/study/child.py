"""Starts one run of the demonstrator in a fresh child process.

A fresh process a run, for two reasons: BLAS reads its thread count once, when NumPy is first imported, so the
environment has to be set before; and a heap that an earlier run left behind would change the collector's work.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from stallbook.demo import Settings
from stallbook.demo.__main__ import BLAS_VARIABLES
from stallbook.errors import StallbookError

__all__ = ["child_command", "child_environment", "launch"]

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5
_GRACE_S = 10.0


def child_command(settings: Settings, out: Path) -> list[str]:
    """The command line of one run."""
    return [sys.executable, "-m", "stallbook.demo", "--settings", json.dumps(asdict(settings)), "--out", str(out)]


def child_environment(settings: Settings) -> dict[str, str]:
    """This process's environment with every BLAS held to the settings' thread count."""
    return {**os.environ, **dict.fromkeys(BLAS_VARIABLES, str(settings.blas_threads))}


def launch(settings: Settings, out: Path, tick: Callable[[float], None] | None = None) -> None:
    """Run to the end, calling `tick(seconds so far)` about twice a second.

    Raises StallbookError with the child's last line where it fails. On Ctrl-C the child, which got the signal
    too, has ten seconds to close its log.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        child = subprocess.Popen(
            child_command(settings, out),
            env=child_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            preexec_fn=_die_with_parent() if sys.platform == "linux" else None,
        )
        try:
            while _still_runs(child):
                if tick is not None:
                    tick(time.monotonic() - started)
        except BaseException:
            _stop(child)
            raise
        if child.returncode != 0:
            said.seek(0)
            raise _failure(child.returncode, said.read(), out)


def _still_runs(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _stop(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _failure(code: int, said: str, out: Path) -> StallbookError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    what = f"the run of {out.name.removesuffix('.stall')} {how} ({last})"
    return StallbookError("run-failed", what, "remove the cause and give the same command again: it resumes")


def _die_with_parent() -> Callable[[], None]:
    """A killed study must not leave a run behind that would slow down its own successor."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up here: nothing may be imported after the fork

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask
