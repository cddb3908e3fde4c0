"""What one run is asked to plant: kinds, how often, from which seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from stallbook.errors import StallbookError

__all__ = ["KINDS", "Task", "choose"]

KINDS: Final = {
    "burst": "prefill",
    "pool": "preempt",
    "fallback": "graph",
    "collection": "gc",
    "document": "tok",
    "competitor": "os",
    "quota": "os",
    "repeat": "slow",
    "scheduler": "sched",
    "compile": "other:compile",
    "adapter": "other:adapter",
    "left-out": "unscheduled",
    "hold": "other:kv",
}
"""Each kind of fault, and the cause that must own it."""


@dataclass(frozen=True)
class Task:
    """One run: `faults` of each of `kinds`, in an order, at moments and of lengths that `seed` draws."""

    seed: int = 1
    faults: int = 40
    kinds: tuple[str, ...] = tuple(KINDS)

    @property
    def total(self) -> int:
        """How many faults it asks for."""
        return self.faults * len(self.kinds)

    def to_json(self) -> str:
        """What `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """A task as another process wrote it."""
        told = json.loads(text)
        return cls(int(told["seed"]), int(told["faults"]), tuple(told["kinds"]))


def choose(names: Sequence[str]) -> tuple[str, ...]:
    """Kinds by their own name or by their cause's, in the order of `KINDS`; all of them for none."""
    wanted = {name.strip() for name in names if name.strip()}
    known = set(KINDS) | set(KINDS.values())
    if unknown := sorted(wanted - known):
        raise StallbookError("bad-kind", f"there is no fault {unknown[0]!r}", f"choose among {', '.join(KINDS)}")
    return tuple(kind for kind, cause in KINDS.items() if not wanted or {kind, cause} & wanted)
