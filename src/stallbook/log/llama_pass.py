"""One pass of llama.cpp's loop while it is read: what its batch holds, and what its thread was at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stallbook.run import UNKNOWN

__all__ = ["Pass", "Row"]


@dataclass(slots=True)
class Row:
    """A request's part of a batch: tokens that decode with those that they attend, or of its prompt (-1: unknown)."""

    request: int
    decode: int = 0
    kv: int = 0
    prompt: int = 0
    split: bool = False
    """It lies in more than one forward pass."""


@dataclass(slots=True)
class Pass:
    """From when and from which line on; what the batch holds, in its order; and the rest."""

    t0: int
    line: int
    rows: list[Row] = field(default_factory=list)
    name: str = "sched"
    since: int = 0
    tried: int = 0
    """When the forward pass that is tried now was begun with."""
    waits: bool = False
    """The batch is put together and has not run."""
    done: int = UNKNOWN
    """When the forward pass was back."""
    width: int = 0
    off: int = 0
    tokens: dict[int, int] = field(default_factory=dict)
    segments: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.since = self.t0

    def enter(self, name: str, t: int) -> None:
        """The thread turns to something else."""
        if t > self.since:
            self.segments.append((self.name, self.since, t))
        self.name, self.since = name, max(t, self.since)

    def begin(self, t: int, width: int, off: int) -> None:
        """A forward pass over so many tokens of the batch, from that one on, is next."""
        self.enter("sched", t)
        self.tried, self.waits, self.width, self.off, self.done = t, True, width, off, UNKNOWN

    def back(self, t: int) -> None:
        """What was handed over to the thread that computes is back."""
        if self.name == "decode":
            self.done, self.waits = t, False
            self.enter("sample", t)
        elif self.name == "draft":
            self.enter("sched" if self.done == UNKNOWN else "sample", t)
        elif self.done == UNKNOWN:
            self.enter("sample", t)

    def failed(self, t: int) -> None:
        """The pass found no free cells: all of it was for nothing."""
        if self.tokens:
            return
        kept = [(name, t0, min(t1, self.tried)) for name, t0, t1 in self.segments if t0 < self.tried]
        self.segments, self.name, self.since, self.done = kept, "kv", max(self.tried, self.t0), UNKNOWN
        self.waits = False

    def ended(self, t: int) -> list[tuple[str, int, int]]:
        """All segments, now that it ended."""
        self.enter("", t)
        return self.segments

    def view(self) -> Iterator[Row]:
        """The part of the batch that this forward pass took."""
        low, high, place = self.off, self.off + self.width, 0
        for row in self.rows:
            size = row.decode + row.prompt if row.prompt >= 0 else high
            begin, end = max(place, low), min(place + size, high) if self.width else place + size
            place += size
            if row.decode and begin < end:
                yield Row(row.request, end - begin, row.kv)
            elif begin < end:
                yield Row(row.request, prompt=end - begin if row.prompt >= 0 else -1)
