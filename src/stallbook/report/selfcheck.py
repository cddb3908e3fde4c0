"""A log of a hooked engine held against the engine's own counters; which hooks were found; who ended early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from stallbook.report import words
from stallbook.report.model import RunReport

__all__ = ["rows"]

_EARLY_NS: Final = 1_000_000_000
"""A process that did nothing for so long before the engine's end was not there any more."""


def rows(r: RunReport) -> Iterator[tuple[str, str]]:
    """What can be said, with its name; nothing for a log that no adapter wrote."""
    hooks = list(_told(r.facts, "hooks"))
    if not hooks:
        return
    yield "engine's counts", _counts(r)
    yield "hooks", _hooks(hooks)
    for name, why in r.facts.items():
        if name.rpartition(".")[2] == "hooks_off":
            told = f"SWITCHED OFF in {name.rpartition('.')[0] or 'engine'} after errors of their own"
            yield "", f"{told}; nothing was recorded from then on: {words.plain(str(why))}"
    processes = r.facts.get("processes")
    if isinstance(processes, Mapping):
        yield "processes", _processes(processes)


def _told(facts: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    """A fact as each process told it."""
    for name, value in facts.items():
        if (name == key or name.endswith(f".{key}")) and isinstance(value, Mapping):
            yield value


def _counts(r: RunReport) -> str:
    engine = str(r.facts.get("engine_index", 0))
    found = {"preemptions": r.counters.preemptions, "generation_tokens": r.counters.tokens}
    said: dict[str, int] = {}
    for counters in _told(r.facts, "counters"):
        for name, by_engine in counters.items():
            if name in found and isinstance(by_engine, Mapping) and isinstance(by_engine.get(engine), int):
                said[name] = said.get(name, 0) + by_engine[engine]
    if not said:
        return "not read: the engine keeps no statistics, or it ended before its requests did"
    told = []
    for name, count in said.items():
        noun = name.replace("_", " ")
        agrees = found[name] == count
        told.append(f"{noun} {count:,}, as recorded" if agrees else f"{noun} {count:,}, RECORDED {found[name]:,}")
    return "; ".join(told)


def _hooks(hooks: list[Mapping[str, Any]]) -> str:
    every: dict[str, bool] = {}
    for one in hooks:
        for name, found in one.items():
            every[name] = every.get(name, False) or bool(found)
    missing = [words.plain(name) for name, found in every.items() if not found]
    told = f"{len(every) - len(missing)} of {len(every)} found"
    return f"{told}; missing: {', '.join(missing)}" if missing else told


def _processes(processes: Mapping[str, Any]) -> str:
    ends = {name: one.get("last_ns") for name, one in processes.items() if isinstance(one, Mapping)}
    engine = ends.get("engine")
    told = []
    for name, one in processes.items():
        if not isinstance(one, Mapping):
            continue
        state = "closed its log" if one.get("closed") else "was ended"
        last = ends[name]
        if isinstance(engine, int) and isinstance(last, int) and engine - last > _EARLY_NS:
            state += f" {(engine - last) / 1e9:,.1f} s before the engine"
        told.append(f"{words.plain(name)} {state}")
    return ", ".join(told)
