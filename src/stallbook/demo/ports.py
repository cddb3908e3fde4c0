"""What the engine is handed: a recorder, a clock, an executor, an intake. Tests hand it others than a run does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Clock", "Executor", "Intake", "Recorder", "SpeedProbe", "Tokenized"]


class Recorder(Protocol):
    """The part of `stallbook.record.Recorder` that the engine uses; described there."""

    def name(self, text: str, /) -> int: ...  # noqa: D102
    def arrive(self, request: str, prompt_tokens: int, max_tokens: int, t: int, /) -> int: ...  # noqa: D102
    def prompt(self, handle: int, tokens: int, /) -> None: ...  # noqa: D102
    def admit(self, handle: int, /) -> None: ...  # noqa: D102
    def evict(self, handle: int, recompute: bool, lost_tokens: int, /) -> None: ...  # noqa: D102
    def readmit(self, handle: int, /) -> None: ...  # noqa: D102
    def finish(self, handle: int, /) -> None: ...  # noqa: D102
    def restart(self) -> None: ...  # noqa: D102
    def begin(self, *, t: int | None) -> int: ...  # noqa: D102
    def enter(self, name: int, request: int = ..., t: int | None = ..., /) -> None: ...  # noqa: D102
    def leave(self) -> None: ...  # noqa: D102
    def prefill(self, tokens: int, /) -> None: ...  # noqa: D102
    def join(self, handle: int, /) -> None: ...  # noqa: D102
    def part(self, handle: int, /) -> None: ...  # noqa: D102
    def emit(self) -> int: ...  # noqa: D102
    def member(self, handle: int, /) -> None: ...  # noqa: D102
    def end(  # noqa: D102
        self, graph: int, padded: int, decode_tokens: int, kv_tokens: int, /, *, blocked: int
    ) -> int: ...  # fmt: skip
    def drop(self) -> None: ...  # noqa: D102
    def probe(self, ns: int, /) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Clock:
    """Integer nanoseconds of one monotonic clock, and a way to wait on it."""

    now: Callable[[], int]
    sleep: Callable[[float], None]


class Executor(Protocol):
    """Runs the model and holds its KV cache. Requests are named by the scheduler's keys."""

    def prefill(self, key: int, tokens: Sequence[int], start: int) -> None:
        """Compute and keep the KV of one chunk; `start` 0 begins a request afresh."""

    def decode(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int], padded: int) -> list[int]:
        """One token for each row in one batched call of `padded` rows, the surplus computed and discarded."""

    def decode_eager(self, keys: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> list[int]:
        """One token for each row, a call a row."""

    def swap_out(self, key: int, tokens: int) -> None:
        """Copy a request's KV to the host and give its place up."""

    def swap_in(self, key: int) -> None:
        """Copy it back."""

    def drop(self, key: int) -> None:
        """Forget a request's KV wherever it is."""


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A prompt that is ready to be scheduled."""

    key: int
    ids: list[int]


class Intake(Protocol):
    """Turns texts into token ids, on the loop or elsewhere."""

    on_loop: bool

    def submit(self, key: int, text: str) -> list[int] | None:
        """The ids, or None where they will come out of `poll` later."""

    def poll(self) -> list[Tokenized]:
        """What is ready by now; never blocks."""

    def close(self) -> None:
        """Give up whatever the intake holds."""


class SpeedProbe(Protocol):
    """Samples the machine's speed at step borders."""

    def due(self, now_ns: int) -> bool:
        """Whether it is time for another sample."""

    def sample(self) -> int:
        """Do the fixed work; how many nanoseconds it took."""
