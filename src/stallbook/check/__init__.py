"""Limits on runs, for a pipeline: what must hold, what was found, and whether it holds."""

from __future__ import annotations

from stallbook.check.limits import Limit, Regression, parse_limit, parse_regressions
from stallbook.check.outcome import Checked, Row, check

__all__ = ["Checked", "Limit", "Regression", "Row", "check", "parse_limit", "parse_regressions"]
