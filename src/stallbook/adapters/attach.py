"""Recording the engines of a program that has no plugins of its own for that: `stallbook.attach()`."""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from stallbook.adapters.plugin import VARIABLE

__all__ = ["ENGINES", "GROUP", "attach", "launched"]

ENGINES: Final = ("vllm", "sglang", "transformers")
"""Packages beside this file, each with a `register`."""
GROUP: Final = "stallbook.adapters"
"""Entry points by which other packages bring adapters: functions such as `register`."""
_LAUNCH: Final = Path(__file__).parent / "launch"


def attach(log: str | os.PathLike[str] | None = None) -> None:
    """Record every engine that this program starts from here on.

    The log is the one that the variable `STALLBOOK` names, or `log` where it names none. Without either nothing
    happens, so that the line may stay in the program.
    """
    if log is not None and not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = os.fspath(log)
    if not os.environ.get(VARIABLE):
        return
    for name in ENGINES:
        import_module(f"stallbook.adapters.{name}").register()
    for other in entry_points(group=GROUP):
        try:
            other.load()()
        except Exception as error:
            print(f"stallbook: the adapter {other.name} does not load: {error!r}", file=sys.stderr)


def launched(environment: dict[str, str], log: Path | None = None) -> dict[str, str]:
    """An environment in which every Python attaches by itself as it starts: it finds our `sitecustomize`."""
    from stallbook.adapters.process import SERVER

    found = dict(environment)
    found.setdefault(SERVER, f"{os.getpid()}-{time.time_ns()}")
    if log is not None:
        found[VARIABLE] = str(log)
    rest = found.get("PYTHONPATH")
    found["PYTHONPATH"] = f"{_LAUNCH}{os.pathsep}{rest}" if rest else str(_LAUNCH)
    return found
