"""What an adapter's hooks noted, and what it means: the half of an adapter that runs where the log is read.

Behind a forward pass no cache is warm, and each line of Python costs an engine ten times what it costs elsewhere. So a
hook leaves numbers, a flush writes them as they are (`WholeRecorder.note`), and the reader has a teller turn them into
the records that a recorder would have written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

__all__ = ["Teller", "teller"]

_TELLERS: Final = ("sglang", "transformers", "vllm")


class Teller(Protocol):
    """Follows one process through its notes."""

    def tell(self, t: int, waited: int, words: Sequence[int]) -> list[tuple[int, bytes]]:
        """The records, kind and payload, of what was noted up to `t`. waited: the run-queue delay in that time, or -1.
        Raises any error where the notes make no sense.
        """

    def arrived(self, request: int) -> None:
        """A request came in, and got that handle."""

    def lost(self) -> None:
        """Notes were lost before those that come next."""


def teller(settings: Mapping[str, Any]) -> Teller:
    """The teller of what `WholeRecorder.noted` announced. ValueError where this version has none of that name."""
    name = settings["teller"]
    if name not in _TELLERS:
        raise ValueError(f"no teller of {name}")
    made: Teller = import_module(f"stallbook.notes.{name}").Teller(settings)
    return made
