"""What a fault can lay hands on, and the ports of the engine through which it acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from stallbook.demo.engine import Engine
from stallbook.demo.ports import Executor, Tokenized
from stallbook.demo.workload import Arrival
from stallbook.inject.journal import Entry, Journal

if TYPE_CHECKING:
    from stallbook.inject.fault import Fault
    from stallbook.inject.machine import Competitor, Quota

__all__ = ["PROMPT", "Stage", "Told", "Watched"]

PROMPT: Final = 16
"""Tokens of a calm request's prompt: its prefill is far below what could be a primary cause."""


class HoldingRecorder(Protocol):
    """What a fault has the engine record beyond what the demonstrator does."""

    def enter(self, name: int, request: int = ..., /) -> None: ...
    def hold(self, handle: int, kind: str, /) -> None: ...
    def release(self, handle: int, kind: str, /) -> None: ...


@dataclass(eq=False)
class Stage:
    """A run in progress. `text` is what documents are cut from; `start` is when the engine's trace began."""

    journal: Journal
    recorder: HoldingRecorder
    random: Random
    segment: dict[str, int]
    text: str = ""
    start: int = 0
    rival: Competitor | None = None
    group: Quota | None = None
    active: Fault | None = None
    offered: int = 0
    engine: Engine = field(init=False)

    def now(self) -> int:
        """The journal's clock."""
        return self.journal.now()

    def offer(self, prompt: int, max_new: int) -> str:
        """A request of so many prompt tokens arrives now, tokenized already; its name."""
        return self._arrive(f"#{prompt}", max_new)

    def offer_text(self, chars: int) -> str:
        """A request with a text to tokenize arrives now; its name."""
        at = self.random.randrange(max(1, len(self.text) - chars))
        return self._arrive(self.text[at : at + chars], 1)

    def _arrive(self, text: str, max_new: int) -> str:
        name = f"q{self.offered}"
        self.offered += 1
        self.engine.offer(Arrival(name, max(0, self.now() - self.start) if self.start else 0, text, max_new))
        return name

    def unfinished(self, names: Iterable[str]) -> bool:
        """Whether any of these requests is still to be served."""
        wanted = set(names)
        on_the_way = self.engine.counts.arrived < self.offered
        return on_the_way or any(job.arrival.name in wanted for job in self.engine.jobs.values())

    def competitor(self) -> Competitor:
        """The process that can be told to be busy."""
        assert self.rival is not None
        return self.rival

    def quota(self) -> Quota:
        """The control group of this process."""
        assert self.group is not None
        return self.group


class Told:
    """An intake whose prompts are tokenized already (`#N`: N tokens of them), except for the documents."""

    on_loop = True

    def __init__(self, stage: Stage, encode: Callable[[str], list[int]]) -> None:
        self._stage, self._encode = stage, encode

    def submit(self, key: int, text: str) -> list[int] | None:
        """See `Intake`."""
        if text.startswith("#"):
            return list(range(int(text[1:])))
        t0 = self._stage.now()
        ids = self._encode(text)
        if self._stage.active is not None:
            self._stage.active.entry.add(t0, self._stage.now())
        return ids[:PROMPT]

    def poll(self) -> list[Tokenized]:
        """Nothing is ever late."""
        return []

    def close(self) -> None:
        """Nothing to give up."""


class Watched:
    """An executor that times what was planted, and lets the active fault run the forward pass in its way."""

    def __init__(self, stage: Stage, inner: Executor) -> None:
        self._stage, self._inner = stage, inner
        self._away: dict[int, tuple[Entry, int]] = {}

    def prefill(self, key: int, tokens: Sequence[int], start: int) -> None:
        """See `Executor`."""
        t0 = self._stage.now()
        self._inner.prefill(key, tokens, start)
        fault: Any = self._stage.active
        owns = getattr(fault, "owns", None)
        if owns and owns(self._name(key)):
            fault.entry.add(t0, self._stage.now())

    def decode(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int], padded: int) -> list[int]:
        """See `Executor`."""
        return self._pass(lambda: self._inner.decode(keys, tokens, positions, padded), len(keys), padded)

    def decode_eager(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> list[int]:
        """See `Executor`."""
        return self._pass(lambda: self._inner.decode_eager(keys, tokens, positions), len(keys), -1)

    def _pass(self, run: Callable[[], list[int]], rows: int, padded: int) -> list[int]:
        fault, journal = self._stage.active, self._stage.journal
        if fault is not None and not fault.alone:
            tokens = fault.decode(run, rows, padded)
            journal.mark()
            return tokens
        t0, cpu = journal.now(), journal.cpu()
        tokens = run()
        journal.passed(t0, journal.mark(), journal.cpu() - cpu, padded)
        return tokens

    def swap_out(self, key: int, tokens: int) -> None:
        """See `Executor`. Whoever is swapped out is away until it is back; the copy stops everybody."""
        t0 = self._stage.now()
        self._inner.swap_out(key, tokens)
        if self._stage.active is not None:
            entry = self._stage.active.entry
            self._away[key] = entry, t0
            entry.add(t0, self._stage.now())

    def swap_in(self, key: int) -> None:
        """See `Executor`."""
        t0 = self._stage.now()
        self._inner.swap_in(key)
        if key in self._away:
            entry, gone = self._away.pop(key)
            back = self._stage.now()
            entry.add(t0, back)
            entry.add(gone, back, None, self._name(key))

    def drop(self, key: int) -> None:
        """See `Executor`."""
        self._inner.drop(key)

    def _name(self, key: int) -> str:
        return self._stage.engine.jobs[key].arrival.name
