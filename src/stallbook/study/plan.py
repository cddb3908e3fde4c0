"""Which runs a study makes, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stallbook.errors import StallbookError
from stallbook.study.rungs import Rung

__all__ = ["ORDER_RULE", "Cell", "parse_seeds", "plan"]

ORDER_RULE = (
    "seed by seed; the k-th seed (from 0) starts at rung k modulo the number of rungs "
    "and goes up the ladder for even k, down for odd k, wrapping at its ends"
)
"""Runs of one seed stand next to each other because a machine drifts over minutes. From seed to seed the
start rotates and the direction alternates, so that drift neither always hits the same rung nor favours the later."""

_SEED_LIMIT = 2**31


@dataclass(frozen=True)
class Cell:
    """One run of a study: a rung under a seed."""

    rung: Rung
    seed: int

    @property
    def name(self) -> str:
        """The run's name in files: ``baseline__s1``."""
        return f"{self.rung.slug}__s{self.seed}"


def plan(rungs: Sequence[Rung], seeds: Sequence[int]) -> list[Cell]:
    """All cells of a study in the order in which they run (`ORDER_RULE`)."""
    return [Cell(rungs[index], seed) for k, seed in enumerate(seeds) for index in _walk(len(rungs), k)]


def _walk(count: int, k: int) -> Iterator[int]:
    direction = 1 if k % 2 == 0 else -1
    return ((k + direction * i) % count for i in range(count))


def parse_seeds(text: str) -> tuple[int, ...]:
    """``"1-5"``, ``"3"`` or ``"1-3,7"`` as the seeds it names, in the order given."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise StallbookError(
                "bad-seeds", f"{text!r} names no seeds", 'write a list or a range, as in "1-5" or "1,4"'
            )
        first, last = int(low), int(high or low)
        if last < first or last >= _SEED_LIMIT or last - first >= 1000:
            raise StallbookError(
                "bad-seeds", f"{part.strip()!r} is no range of seeds", 'write "1-5", at most 1000 of them'
            )
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) < len(seeds):
        raise StallbookError(
            "bad-seeds", f"{text!r} names a seed twice", "name each seed once: a repeat is no new trace"
        )
    return tuple(seeds)
