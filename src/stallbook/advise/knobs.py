"""Knobs as data: what an engine calls a fix's setting, where its value stands in a log, when it is set already.

An engine is a table in a module of its own, `knobs_ENGINE.py`, listed in `engines.py`: nothing else knows an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from stallbook.advise.measured import Measured

__all__ = ["Engine", "Knob", "at_least", "budget", "covering", "covers", "is_", "small_budget"]

NEAR: Final = 1.5
"""A budget of up to this many times what is wanted is small already."""


@dataclass(frozen=True)
class Knob:
    """One flag that brings about one fix.

    key: its name among the settings in a log; empty where no log holds it. done: whether a present value brings the
    fix about already. to: the value to set; a function where it depends on what was measured. when: whether the
    knob has any effect in this run. default: as the engine's help gives it.
    """

    fix: str
    flag: str
    key: str = ""
    default: Any = None
    move: Literal["set", "raise", "lower"] = "set"
    to: str | Callable[[Measured], str] = ""
    done: Callable[[Any, Measured], bool] = field(default=lambda value, m: False)
    when: Callable[[Measured], bool] = field(default=lambda m: True)


@dataclass(frozen=True)
class Engine:
    """One engine's table. prefix: how its name begins in a log. source: where the flags were read, of which `version`.

    by_itself: fixes that the engine brings about without a knob, by slug, and since when or how. simulated: whether
    `stallbook predict` knows its scheduler.
    """

    name: str
    prefix: str
    source: str
    knobs: tuple[Knob, ...]
    version: str = ""
    by_itself: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False

    def of(self, fix: str) -> tuple[Knob, ...]:
        """The knobs of one fix, the first to be turned first."""
        return tuple(knob for knob in self.knobs if knob.fix == fix)


def is_(wanted: Any) -> Callable[[Any, Measured], bool]:
    """Done when the setting has this value."""
    return lambda value, m: type(value) is type(wanted) and value == wanted


def at_least(least: float) -> Callable[[Any, Measured], bool]:
    """Done when the setting is at least so much."""
    return lambda value, m: isinstance(value, (int, float)) and value >= least


def covers(value: Any, m: Measured) -> bool:
    """Whether captured sizes, or the largest of them, hold the largest batch that was seen."""
    sizes = [value] if isinstance(value, int) else value
    if not isinstance(sizes, (list, tuple)) or not all(isinstance(n, int) for n in sizes):
        return False
    return bool(sizes) and m.largest_batch is not None and max(sizes) >= m.largest_batch


def covering(m: Measured) -> str:
    """Captured sizes up to the most requests that may run, in the steps in which the present ones end."""
    sizes, most = m.setting("capture_sizes"), m.setting("max_num_seqs")
    most = most if isinstance(most, int) else m.largest_batch
    if not most:
        return ""
    known = sorted(n for n in sizes if isinstance(n, int)) if isinstance(sizes, (list, tuple)) else []
    step = max(known[-1] - known[-2] if len(known) > 1 else 8, 1)
    while not known or known[-1] < most:
        known.append(min((known[-1] if known else 0) + step, most))
    return ",".join(map(str, known))


def small_budget(value: Any, m: Measured) -> bool:
    """Whether a step's prompts take about as long as the median gap, or less, at this budget."""
    wanted = m.wanted_budget
    return isinstance(value, int) and wanted is not None and 0 < value <= NEAR * wanted


def budget(m: Measured) -> str:
    """The token budget to set; empty where it cannot be told from this log."""
    return str(m.wanted_budget or "")
