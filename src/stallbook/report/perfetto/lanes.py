"""Slices that may overlap, laid out on as few tracks as they need: a track holds slices inside one another only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from stallbook.report.perfetto.stream import Args, Stream
from stallbook.run import Ints

__all__ = ["Lane", "rows"]

BLOCK: Final = 8192
"""Rows of a table that are plain numbers at a time."""
_NONE: Final[Args] = {}


class Lane:
    """One lane of a trace. Slices come by their starts, the longer of two that start together first.

    A slice that crosses another one goes to a further track of the same name, which is shown with the first.
    """

    def __init__(self, stream: Stream, name: str, parent: int, *, rank: int = 0, about: str = "") -> None:
        self._stream, self._name, self._parent, self._rank, self._about = stream, name, parent, rank, about
        self._tracks: list[tuple[int, list[int]]] = []  # each with the ends of its open slices, the innermost last

    def slice(self, t0: int, t1: int, name: str, category: str, args: Args = _NONE) -> None:
        """A slice [t0, t1)."""
        track, ends = self._place(t0, t1)
        self._stream.begin(track, t0, name, category, args)
        ends.append(t1)

    def close(self) -> None:
        """End what is open."""
        for track, ends in self._tracks:
            self._end(track, ends, None)

    def _place(self, t0: int, t1: int) -> tuple[int, list[int]]:
        for track, ends in self._tracks:
            self._end(track, ends, t0)
            if not ends or t1 <= ends[-1]:
                return track, ends
        track = self._stream.lane(self._name, self._parent, rank=self._rank, about=self._about)
        self._tracks.append((track, []))
        return self._tracks[-1]

    def _end(self, track: int, ends: list[int], until: int | None) -> None:
        while ends and (until is None or ends[-1] <= until):
            self._stream.end(track, ends.pop())


def rows(columns: Sequence[Ints], order: Ints) -> Iterator[Any]:
    """The rows of a table in that order, as tuples of plain numbers, a block at a time."""
    for start in range(0, len(order), BLOCK):
        some = order[start : start + BLOCK]
        yield from zip(*(column[some].tolist() for column in columns), strict=True)
