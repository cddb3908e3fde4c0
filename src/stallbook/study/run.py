"""Runs a study: measures the rate once, then each cell that is not done, one by one, each in its own process."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from stallbook.demo import Settings
from stallbook.errors import StallbookError
from stallbook.study.folder import Folder
from stallbook.study.plan import ORDER_RULE, Cell, plan
from stallbook.study.rungs import Rung, choose, settings_of

__all__ = ["OVERLOAD_FROM", "Spec", "Tools", "Watcher", "execute", "machine"]

OVERLOAD_FROM = 1.15
"""A rate of at least this many times the automatic one is past capacity: the study is marked as overload."""
_CALIBRATION_S = 1.0

Launch = Callable[[Settings, Path, Callable[[float], None] | None], None]


@dataclass(frozen=True)
class Spec:
    """What the user asked for. A study is resumed only under an equal one."""

    rungs: tuple[Rung, ...]
    seeds: tuple[int, ...]
    seconds: float
    rate: float | None = None
    """Requests a second; None measures it."""
    overload: float | None = None
    """Multiplies the measured rate."""
    calibrations: int = 3
    """How often the rate is measured; the median counts."""

    def as_json(self) -> dict[str, Any]:
        """As study.json stores it."""
        return {
            "rungs": [rung.slug for rung in self.rungs],
            "seeds": list(self.seeds),
            "seconds": self.seconds,
            "rate": "auto" if self.rate is None else self.rate,
            "overload": self.overload,
        }

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> Spec:
        """The specification of a stored study."""
        rate = None if stored["rate"] == "auto" else float(stored["rate"])
        seeds = tuple(int(seed) for seed in stored["seeds"])
        return cls(choose(stored["rungs"]), seeds, float(stored["seconds"]), rate, stored.get("overload"))


@dataclass(frozen=True)
class Tools:
    """What a study needs from outside: starting a run, reading the rate it ran at, and analysing its log."""

    launch: Launch
    rate_of: Callable[[Path], float]
    """The arrival rate that the run of a log used."""
    analyse: Callable[[Path], Mapping[str, Any]]
    """``{"post": report, "full": report, "probe": summary}`` of a log."""
    opens: Callable[[Path], bool]


class Watcher(Protocol):
    """Is told how a study goes on."""

    def calibrating(self, number: int, of: int) -> None:
        """The rate is being measured."""

    def planned(self, header: Mapping[str, Any], done: int, total: int, lost: int) -> None:
        """The study is about to run; `done` cells are kept from before, `lost` have a result and no usable log."""

    def running(self, cell: Cell, seconds: float) -> None:
        """A cell has been running for so long."""

    def finished(self, cell: Cell, line: Mapping[str, Any], seconds: float) -> None:
        """A cell is done and on the disk."""


def execute(spec: Spec, folder: Folder, tools: Tools, watcher: Watcher) -> dict[str, Any]:
    """Run what is not done yet and return the study's header. May be interrupted anywhere and called again."""
    header = folder.header()
    if header is None:
        header = _new_header(spec, *_rates(spec, folder, tools, watcher))
        folder.write_header(header)
    else:
        _refuse_other(spec, header, folder.path)
    cells = plan(spec.rungs, spec.seeds)
    finished = {(line["rung"], line["seed"]) for line in folder.results()}
    lost = [c for c in cells if (c.rung.slug, c.seed) in finished and not tools.opens(folder.log(c))]
    todo = [c for c in cells if (c.rung.slug, c.seed) not in finished or c in lost]
    watcher.planned(header, len(cells) - len(todo), len(cells), len(lost))
    base = Settings(seconds=spec.seconds, rate=float(header["rate"]))
    for cell in todo:
        _run_cell(cell, base, folder, tools, watcher)
    folder.tidy()
    return header


def _run_cell(cell: Cell, base: Settings, folder: Folder, tools: Tools, watcher: Watcher) -> None:
    started = time.monotonic()
    settings = replace(settings_of(cell.rung, base), seed=cell.seed)
    at = time.time()
    try:
        tools.launch(settings, folder.start(cell.name), lambda seconds: watcher.running(cell, seconds))
    except StallbookError as error:
        remedy = f"{error.remedy}; the same command resumes the study"
        raise StallbookError(error.slug, f"{cell.name}: {error.what}", remedy, error.where) from error
    log = folder.keep(cell)
    line = {"rung": cell.rung.slug, "seed": cell.seed, "started": at, "log": log.name, **tools.analyse(log)}
    folder.append(line)
    watcher.finished(cell, line, time.monotonic() - started)


def _rates(spec: Spec, folder: Folder, tools: Tools, watcher: Watcher) -> tuple[float, list[float]]:
    """The study's rate and the automatic rates it was taken from. A given rate is measured against one, too."""
    times = spec.calibrations if spec.rate is None else 1
    measured = []
    for number in range(times):
        watcher.calibrating(number + 1, times)
        place = folder.start(f"rate-{number + 1}")
        settings = Settings(seconds=_CALIBRATION_S, rate=None)
        tools.launch(settings, place, None)
        measured.append(tools.rate_of(place))
    auto = statistics.median(measured)
    return (auto * (spec.overload or 1.0) if spec.rate is None else spec.rate), measured


def _new_header(spec: Spec, rate: float, measured: Sequence[float]) -> dict[str, Any]:
    auto = statistics.median(measured)
    return {
        "stallbook_study": 1,
        "settings": spec.as_json(),
        "rate": rate,
        "auto_rate": auto,
        "auto_rates": list(measured),
        "past_capacity": rate >= OVERLOAD_FROM * auto,
        "order": ORDER_RULE,
        "machine": machine(),
        "versions": _versions(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _refuse_other(spec: Spec, header: Mapping[str, Any], path: Path) -> None:
    """A study's cells must be comparable: same settings, machine and versions."""
    now = {**spec.as_json(), "machine": machine(), **_versions()}
    then = {**header["settings"], "machine": header["machine"], **header["versions"]}
    for key, value in now.items():
        if then.get(key) != value:
            what = f"the study in this folder has {key} {_short(then.get(key))}, not {_short(value)}"
            remedy = "give its settings to resume it, --out another folder, or --force to start over"
            raise StallbookError("other-study", what, remedy, str(path))


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(str(item) for item in value.values())
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


def machine() -> dict[str, Any]:
    """The machine as far as it decides whether two runs can stand in one table."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": _cpu_model(), "cores": cores, "system": platform.system()}


def _cpu_model() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for row in file:
                name, _, value = row.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    return {"stallbook": version("stallbook"), "python": platform.python_version(), "numpy": version("numpy")}
