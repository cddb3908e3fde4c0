"""Reports: what is said is drawn up in `model`, once; `text` and `jsonout` say it."""

from stallbook.report.model import RunReport, build, reports

__all__ = ["RunReport", "build", "reports"]
