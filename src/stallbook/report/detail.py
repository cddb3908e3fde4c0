"""What the page shows of a run beyond its report: the run over time, its worst stalls lane by lane, single events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stallbook.causes import CLEAN
from stallbook.incidents import Incidents, find_incidents
from stallbook.overtime import OverTime, over_time
from stallbook.report.model import Boundary, RunReport, build
from stallbook.report.stalled import told
from stallbook.scene import Scene, find_scenes
from stallbook.stalls import Stall
from stallbook.waits import boundary_gaps

if TYPE_CHECKING:
    from stallbook.partition import Partition

__all__ = ["PICTURES", "Detail", "detail", "details"]

PICTURES: Final = 8
"""Stalls that get a picture: the worst, and the worst of each other cause among those on record."""
WORST: Final = 3


@dataclass(frozen=True)
class Detail:
    """A report with what only a page has room for."""

    report: RunReport
    time: OverTime
    stalls: tuple[tuple[Stall, Scene], ...]
    incidents: Incidents


def details(partitions: Iterable[Partition], boundary: Boundary = "engine") -> Iterator[Detail]:
    """One a partition, one at a time."""
    return (detail(partition, boundary) for partition in partitions)


def detail(p: Partition, boundary: Boundary = "engine") -> Detail:
    """Draw up one partition."""
    report = build(p, boundary)
    shown = _shown(report)
    waits = None if boundary == "engine" else boundary_gaps(p, boundary)
    scenes = find_scenes(p, shown, boundary)
    return Detail(report, over_time(p, waits), tuple(zip(shown, scenes, strict=True)), find_incidents(p))


def _shown(report: RunReport) -> list[Stall]:
    worst = told(report)
    shown, seen = worst[:WORST], {s.primary for s in worst[:WORST]} | {CLEAN}
    for stall in worst[WORST:]:
        if stall.primary not in seen and len(shown) < PICTURES:
            seen.add(stall.primary)
            shown.append(stall)
    return shown
