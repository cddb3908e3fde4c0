"""manifest.json: what a log is, who wrote it, and by which clock."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["BOUNDARIES", "NAME", "VERSION", "Told", "describe", "plain", "text", "write"]

NAME: Final = "manifest.json"
VERSION: Final = 1
"""Version of the folder: the manifest's fields and the spools beside it. History. 1: the first."""

BOUNDARIES: Final = ("engine", "frontend", "client")
_BASELINE: Final = ("fixed_ns", "row_ns", "kv_token_ns")
_DEEPEST: Final = 32


def text(value: object) -> str:
    """The `str` of any object, or its type's name where it has none."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def plain(value: object, depth: int = 0) -> Any:
    """Any object as JSON can hold it: a key becomes text, what JSON does not know its `str`, what is too deep null."""
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if abs(value) < 2**1024 else None  # Python refuses to print the longest
    if isinstance(value, (Mapping, list, tuple, set, frozenset)) and depth > _DEEPEST:
        return None
    try:
        if isinstance(value, Mapping):
            return {text(key): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [plain(item, depth + 1) for item in value]
    except Exception:
        return f"<{type(value).__name__}>"
    return text(value)


class Told:
    """What a recorder was told of its run, in a form that every reader takes; `refused` counts what was left out."""

    __slots__ = ("baseline", "boundary", "config", "engine", "records", "refused")

    def __init__(
        self, engine: object, boundary: str, records: Iterable[str], config: object, baseline: object
    ) -> None:  # fmt: skip
        self.refused = 0
        told = plain(engine)
        self.engine = told if isinstance(told, str) else json.dumps(told)
        self.boundary = boundary if boundary in BOUNDARIES else self._refuse("engine")
        listed = plain(records if isinstance(records, (list, tuple, set, frozenset)) else list(records))
        self.records = {word for word in listed if isinstance(word, str) and word.isprintable() and word}
        self.refused += len(self.records) < len(set(map(str, listed)))
        given = plain(config or {})
        self.config: dict[str, Any] = given if isinstance(given, dict) else self._refuse({})
        numbers = plain(baseline) if baseline else None
        self.baseline = numbers if numbers is None or _is_baseline(numbers) else self._refuse(None)

    def _refuse(self, instead: Any) -> Any:
        self.refused += 1
        return instead


def _is_baseline(told: object) -> bool:
    given = [told.get(name) for name in _BASELINE] if isinstance(told, dict) else [None]
    return all(isinstance(n, (int, float)) and type(n) is not bool and abs(n) <= 2**61 for n in given)


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
