"""Recorded runs and made ones, for tests of predictions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import stallbook as sb
from stallbook.run import Run

LOGS = Path(__file__).parents[1] / "data" / "predict"


@cache
def recorded(name: str) -> Run:
    """A run of the demonstrator that is kept as test data: see its README."""
    return sb.open(LOGS / f"{name}.jsonl.gz")
