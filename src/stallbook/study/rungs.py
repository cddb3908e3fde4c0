"""The seven rungs of the fix ladder, and ours above them: each keeps every fix above it and adds one of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stallbook.demo import Settings
from stallbook.errors import StallbookError

__all__ = ["EVERY", "OURS", "RUNGS", "Rung", "choose", "settings_of", "slug_of"]


def slug_of(name: str) -> str:
    """A rung's name as it stands in file names: its words in lower case, joined by dashes."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


@dataclass(frozen=True)
class Rung:
    """One rung: what it changes on the demonstrator, and the cause that the change is meant to remove."""

    name: str
    delta: Mapping[str, Any] = field(default_factory=dict)
    cause: str | None = None

    @property
    def slug(self) -> str:
        """The rung's name in file names and results."""
        return slug_of(self.name)


RUNGS: tuple[Rung, ...] = (
    Rung("baseline"),
    Rung("+gc.freeze", {"gc_freeze": True}, "gc"),
    Rung("+compact history", {"compact_history": True}, "gc"),
    Rung("+graphs to 48", {"capture_sizes": (1, 2, 4, 8, 16, 24, 32, 40, 48)}, "graph"),
    Rung("+budget 256", {"token_budget": 256}, "prefill"),
    Rung("+tokenize off-loop", {"tokenize": "process"}, "tok"),
    Rung("+admit watermark", {"admit_watermark": 0.10}, "preempt"),
)
"""From the bottom up. A rung's settings are the deltas of all rungs up to it, whichever rungs a study runs."""

OURS: tuple[Rung, ...] = (
    Rung("+admit forecast", {"admit_by": "forecast", "admit_watermark": 0.0}),
    Rung("+work budget", {"token_budget": 1000, "decode_weight": 26.0, "context_weight": 0.0012}, "prefill"),
    Rung("+nice tokenizer", {"tokenizer_nice": 10}),
)
"""Above the seven: the last one's p99.9 without what it costs the first token. They run only when they are named."""

EVERY = (*RUNGS, *OURS)


def settings_of(rung: Rung, base: Settings) -> Settings:
    """The settings of a rung: `base` with the fixes of this rung and of every rung below it."""
    deltas: dict[str, Any] = {}
    for each in EVERY[: EVERY.index(rung) + 1]:
        deltas.update(each.delta)
    return replace(base, **deltas)


def choose(names: Iterable[str]) -> tuple[Rung, ...]:
    """The named rungs in the ladder's order, or the seven; a name may be written as printed or as its slug."""
    wanted = {slug_of(name): name for name in names if name.strip()}
    known = {rung.slug for rung in EVERY}
    for slug, name in wanted.items():
        if slug not in known:
            listed = ", ".join(rung.slug for rung in EVERY)
            raise StallbookError("unknown-rung", f"no rung is called {name.strip()!r}", f"the rungs are: {listed}")
    if not wanted:
        return RUNGS
    return tuple(rung for rung in EVERY if rung.slug in wanted)
