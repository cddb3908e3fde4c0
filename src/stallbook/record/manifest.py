"""manifest.json: what a log is, who wrote it, and by which clock."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["NAME", "VERSION", "describe", "write"]

NAME: Final = "manifest.json"
VERSION: Final = 1
"""Version of the folder: the manifest's fields and the spools beside it. History. 1: the first."""


def describe(clock: Callable[[], int]) -> dict[str, Any]:
    """The facts about this machine and process that explain a log. No host, user or command line."""
    system = os.uname()
    return {
        "stallbook_log": VERSION,
        "clock": {"name": getattr(clock, "__name__", type(clock).__name__), "ns": clock(), "unix_ns": time.time_ns()},
        "platform": {
            "system": system.sysname, "release": system.release, "machine": system.machine, "cpus": os.cpu_count(),
        },
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "pid": os.getpid(),
    }  # fmt: skip


def write(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write it whole or not at all: readers may look at any moment."""
    part = folder / f".{NAME}.{os.getpid()}"
    text = json.dumps(manifest, indent=1, default=str).encode()
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text)
        part.replace(folder / NAME)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
