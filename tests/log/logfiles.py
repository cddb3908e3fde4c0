"""Small logs for the tests of reading and writing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

import stallbook.log
from stallbook.errors import StallbookError
from stallbook.run import Run

DATA = Path(__file__).parents[1] / "data"
SCENARIOS = sorted((DATA / "scenarios").glob("*.jsonl"))
GOLDEN = sorted(path for path in (DATA / "golden").glob("*.npz") if not path.name.endswith(".parts.npz"))

HEADER = {"stallbook": 1, "engine": "test 1", "boundary": "engine", "records": ["segments", "gc"], "config": {}}


def step(id: int, t0: int, t1: int, **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"e": "step", "id": id, "t0": t0, "t1": t1, **more}


def emit(step: int, t: int, **tokens: int) -> dict[str, Any]:
    return {"e": "emit", "step": step, "t": t, "tokens": tokens or {"r1": 1}}


def segment(step: int, t0: int, t1: int, name: str = "decode", **more: Any) -> dict[str, Any]:
    return {"e": "segment", "step": step, "name": name, "t0": t0, "t1": t1, **more}


def gc(t0: int, t1: int, **more: Any) -> dict[str, Any]:
    return {"e": "gc", "t0": t0, "t1": t1, "generation": 2, **more}


def of(event: str, t: int, request: str = "r1", **more: Any) -> dict[str, Any]:
    return {"e": event, "request": request, "t": t, **more}


def hold(t0: int, t1: int | None, kind: str = "kv", request: str = "r1") -> dict[str, Any]:
    return {"e": "hold", "request": request, "kind": kind, "t0": t0, "t1": t1}


def save(path: Path, *events: dict[str, Any] | str, header: dict[str, Any] | str | None = None) -> Path:
    """A JSON Lines file; the header is line 1, the first event line 2. A string is a line as it is."""
    lines = [HEADER if header is None else header, *events]
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines), encoding="utf-8")
    return path


def load(path: Path, *events: dict[str, Any] | str, header: dict[str, Any] | str | None = None) -> Run:
    return stallbook.log.open_run(save(path / "run.jsonl", *events, header=header))


def attempt(path: Path) -> Run | StallbookError:
    """What opening `path` gives: a run, or an error of one line, which names the file and has a remedy."""
    try:
        return stallbook.log.open_run(path)
    except StallbookError as error:
        caught = error
    assert "\n" not in str(caught), caught
    assert path.name in caught.where, caught
    assert caught.what, caught
    assert caught.remedy, caught
    return caught


def refused(path: Path) -> StallbookError:
    """The error that opening `path` gives."""
    error = attempt(path)
    assert isinstance(error, StallbookError), f"opened: {error}"
    return error


def difference(a: Any, b: Any, at: str = "run", ignore: frozenset[str] = frozenset({"path"})) -> str:
    """Where two runs differ first; empty if they are equal."""
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        if type(a) is not type(b):
            return at
        names = [field.name for field in dataclasses.fields(a) if field.name not in ignore]
        found = (difference(getattr(a, name), getattr(b, name), f"{at}.{name}") for name in names)
        return next((place for place in found if place), "")
    if isinstance(a, np.ndarray):
        return "" if a.dtype == b.dtype and np.array_equal(a, b) else f"{at}: {a} != {b}"
    return "" if a == b else f"{at}: {a!r} != {b!r}"
