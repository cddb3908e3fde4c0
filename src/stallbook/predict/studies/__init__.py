"""Studies: what the post asked next, each answered by simulation from one recorded run."""

from __future__ import annotations

from typing import Final

from stallbook.predict.studies import disaggregate, floor, swap, watermark
from stallbook.predict.studies.study import Asked, Panel, Point, Range, Study, Work

__all__ = ["STUDIES", "Asked", "Panel", "Point", "Range", "Study", "Work"]

STUDIES: Final[dict[str, Work]] = {
    "swap": swap.study,
    "watermark": watermark.study,
    "disaggregate": disaggregate.study,
    "floor": floor.study,
}
"""By the name that a user asks for."""
