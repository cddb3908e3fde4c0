"""A logbook for LLM serving engines: every nanosecond of every inter-token gap, charged to exactly one cause.

    import stallbook as sb
    run = sb.open("x.stall")
    p = sb.partition(run)
    print(sb.report(run))

The names are loaded when they are first used: an engine that imports `stallbook.record` loads nothing else.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stallbook.adapters.attach import attach
    from stallbook.compare import compare
    from stallbook.log import open, write  # noqa: A004
    from stallbook.partition import partition
    from stallbook.record import NullRecorder, Recorder
    from stallbook.report import report

__all__ = ["NullRecorder", "Recorder", "attach", "compare", "open", "partition", "report", "write"]

__version__ = "0.1.0"

_HOME: Final = {
    "NullRecorder": "stallbook.record",
    "Recorder": "stallbook.record",
    "attach": "stallbook.adapters.attach",
    "compare": "stallbook.compare",
    "open": "stallbook.log",
    "partition": "stallbook.partition",
    "report": "stallbook.report",
    "write": "stallbook.log",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stallbook' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Keeps `partition` and `report` the functions, where importing the modules of these names would bind those."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
