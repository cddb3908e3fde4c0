"""What advice is made of. Plain data: a report prints it, and derives nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

__all__ = [
    "ALREADY", "NEXT", "NOT_IN_LOG", "THEN", "Advice", "Cost", "Finding", "Fix", "Remedy", "Setting", "Silence",
    "Statement",
]  # fmt: skip

NEXT, THEN, ALREADY = "next", "then", "already"
NOT_IN_LOG: Final = "not in this log"
"""The present value of a setting that the log does not hold."""


@dataclass(frozen=True)
class Statement:
    """A sentence of the evidence with its figures, which stand in braces in `text`.

    A figure's name tells its unit: `..._ms` is a duration, `..._share` a part of something, any other number a count.
    """

    sense: Literal["for", "against"]
    text: str
    figures: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What a fix costs and where that shows: a figure of the report, or memory, CPU, start-up, or the code."""

    where: str
    what: str


@dataclass(frozen=True)
class Fix:
    """Something that can be done about a cause, in any engine. note: what not to expect of it."""

    slug: str
    what: str
    costs: tuple[Cost, ...]
    note: str = ""


@dataclass(frozen=True)
class Setting:
    """A knob of one engine: its name as the engine's help spells it, its present value, and where to move it.

    present: NOT_IN_LOG where the log does not hold it. default: of the version that the table was read from. to: the
    value, as it is written after the flag; empty for a switch, or where only the direction is known.
    """

    flag: str
    move: Literal["set", "raise", "lower"]
    to: str
    present: Any
    default: Any


@dataclass(frozen=True)
class Remedy:
    """A fix with its knobs in this engine. state: "next" to be done, "then" after it, or "already" done; why says by
    what.
    """

    fix: Fix
    state: str
    settings: tuple[Setting, ...]
    why: str = ""


@dataclass(frozen=True)
class Finding:
    """One cause that owns enough of the tail. leads: gaps of the tail whose primary cause it is.

    p99, p999: in ms, had the cause cost nothing and all else stayed as it was. record: what to record before anything
    is changed, where the log leaves the cause in doubt.
    """

    cause: str
    meaning: str
    ability: str
    share: float
    leads: int
    evidence: tuple[Statement, ...]
    remedies: tuple[Remedy, ...]
    p99: float | None
    p999: float | None
    record: str = ""

    @property
    def next(self) -> Remedy | None:
        """The first fix that is not done already."""
        return self.remedies[0] if self.remedies and self.remedies[0].state == NEXT else None


@dataclass(frozen=True)
class Silence:
    """A cause of which the log knows too little for advice. share: of the tail, as far as the log can tell."""

    cause: str
    ability: str
    known: str
    record: str
    share: float = 0.0


@dataclass(frozen=True)
class Advice:
    """The advice on one run. present: figures in which a cost would show, in ms or tokens a second.

    source: where the names of the knobs were read; empty where the engine is unknown. ruled_out: causes that the log
    records and that hold no time in the tail. simulated: whether `stallbook predict` knows this engine's scheduler.
    """

    path: str
    engine: str
    boundary: str
    rules: str
    threshold_ms: float | None
    tail_gaps: int
    gaps: int
    present: Mapping[str, float | None]
    findings: tuple[Finding, ...]
    silences: tuple[Silence, ...]
    ruled_out: tuple[str, ...]
    source: str
    least_share: float
    simulated: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)
    """What reading the log had to repair or leave out, counted."""

    @property
    def foremost(self) -> Finding | None:
        """What to look at first: the largest cause but the forward pass, which is the work and no stall."""
        stalls = [f for f in self.findings if f.cause != "fwd"]
        return next(iter(stalls or self.findings), None)
