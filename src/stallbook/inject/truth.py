"""The truth about one run: plain data, written by the journal, read by the score."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Planted", "Truth", "Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """`ns` of planted time lie evenly in [t0, t1). `request` owns it; empty: every request in flight does."""

    t0: int
    t1: int
    ns: int
    request: str = ""


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault: what it was, which cause must own its time, and where that time lies."""

    kind: str
    cause: str
    windows: tuple[Window, ...]


@dataclass(frozen=True)
class Truth:
    """Everything planted between t0 and t1, ns of the log's clock.

    foreign: time in which the engine's thread did not run though nothing was planted that would explain it.
    hindered: what forward passes that no fault touched took beyond what is usual, in CPU time of their own.
    unavailable: kinds that this machine does not allow, and why. failed: faults that could not be planted, by kind.
    """

    t0: int
    t1: int
    faults: tuple[Planted, ...] = ()
    foreign: tuple[Window, ...] = ()
    hindered: tuple[Window, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Truth:
        """Read what `save` wrote."""
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        faults = tuple(
            Planted(one["kind"], one["cause"], tuple(Window(**w) for w in one["windows"])) for one in told["faults"]
        )
        foreign, hindered = (tuple(Window(**w) for w in told[name]) for name in ("foreign", "hindered"))
        return cls(told["t0"], told["t1"], faults, foreign, hindered, told["unavailable"], told["failed"])
