"""Reports: what is said is drawn up in `model`, once; `text` and `jsonout` say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallbook.report.model import Boundary, RunReport, build, reports

if TYPE_CHECKING:
    from stallbook.partition import Rules
    from stallbook.run import ExplicitBaseline, Run

__all__ = ["Boundary", "RunReport", "build", "report", "reports"]


def report(
    run: Run, rules: Rules = "full", baseline: ExplicitBaseline | None = None, boundary: Boundary = "engine"
) -> RunReport:
    """Partition a run and report on it: `print(report(run))`, `report(run).as_dict()`, `report(run).itl.p99`."""
    from stallbook.partition import partition

    return build(partition(run, rules, baseline), boundary)
