"""What the run did, counted: preemptions, fallback steps, collections, its settings."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from rich.table import Table

from stallbook.report import words
from stallbook.report.layout import pairs
from stallbook.report.model import RunReport

__all__ = ["rows", "table"]

SETTINGS_LENGTH = 300


def table(r: RunReport) -> Table:
    """Every count, and the settings that fit."""
    return pairs(rows(r))


def rows(r: RunReport) -> list[tuple[str, str]]:
    """Every count with its name, and the settings that fit."""
    c, gc = r.counters, r.counters.collections
    out = [
        ("preemptions", words.count(c.preemptions)),
        ("fallback (eager) steps", words.count(c.eager_steps)),
        ("largest decode batch", words.count(c.max_decode_batch)),
        ("garbage collections", _collections(gc.by_generation) if gc else words.UNKNOWN_TEXT),
    ]
    if gc:
        out.append(("full collections, serving", _pauses(gc.gen2_serving_ms)))
        out.append(("full collections, start-up", _pauses(gc.gen2_startup_ms)))
    if told := _settings(r.config):
        out.append(("settings", told))
    return out


def _settings(config: Mapping[str, Any]) -> str:
    """The settings that fit a line or two; JSON has them all."""
    told = [f"{key} {value}" for key, value in config.items() if _short_value(value)]
    lengths = accumulate(len(one) + 2 for one in told)
    shown = told[: sum(length <= SETTINGS_LENGTH for length in lengths)]
    more = f", and {len(told) - len(shown)} more" if len(told) > len(shown) else ""
    return words.plain(", ".join(shown) + more)


def _collections(by_generation: dict[str, int]) -> str:
    return "generation " + ", ".join(f"{generation}: {n:,}" for generation, n in by_generation.items())


def _pauses(ms: list[float]) -> str:
    """The pauses themselves, the longest first where there are many."""
    shown = sorted(ms, reverse=True)[:8]
    more = f" and {len(ms) - len(shown):,} shorter" if len(ms) > len(shown) else ""
    return f"{', '.join(words.ms(one) for one in shown)} ms{more}" if ms else "none"


def _short_value(value: object) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 24)
