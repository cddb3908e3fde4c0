"""What a user demands of runs: `itl.p99=50ms`, `tail.preempt=10%`, and how much worse than before they may be."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from stallbook.compare.figures import Figure, figure
from stallbook.digits import rate
from stallbook.errors import StallbookError

__all__ = ["DEFAULT_REGRESSION", "Limit", "Regression", "parse_limit", "parse_regressions", "shown", "shown_change"]

DEFAULT_FIGURES: Final = ("itl.p50", "itl.p99", "ttft.p99", "tokens_per_s")
"""What a regression limit without a name is about."""
DEFAULT_REGRESSION: Final = "10%"

_UNITS_MS: Final = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}
_EXAMPLE: Final = {"time": "50ms", "share": "10%", "rate": "1500", "count": "20"}


@dataclass(frozen=True)
class Limit:
    """A figure must be at most, or at least, this: ms, a fraction, or a number."""

    figure: Figure
    side: Literal["max", "min"]
    value: float

    @property
    def name(self) -> str:
        """As it is told to a reader."""
        return f"{self.figure.name} {'at most' if self.side == 'max' else 'at least'} {shown(self.figure, self.value)}"

    def holds(self, found: float) -> bool:
        """Whether a value is within the limit."""
        return found <= self.value if self.side == "max" else found >= self.value


@dataclass(frozen=True)
class Regression:
    """A figure may be worse than before by at most this: a part of it, or an amount (a share, ms) of a cause's."""

    figure: Figure
    value: float

    @property
    def relative(self) -> bool:
        """Whether the limit is a part of the figure; else an amount."""
        return self.figure.kind in ("time", "rate") and not self.figure.cause

    @property
    def name(self) -> str:
        """As it is told to a reader."""
        return f"{self.figure.name} at most {shown_change(self, self.value)}"


def parse_limit(text: str, side: Literal["max", "min"]) -> Limit:
    """`FIGURE=VALUE` with a unit where the figure is a time or a share."""
    name, given = _parted(text, f"--{side}")
    one = figure(name)
    value = _value(one, given)
    if value is None:
        what = f"--{side} {text!r:.80}: {given!r:.40} is no limit for a {one.kind}"
        raise StallbookError("bad-limit", what, f"write it as in {name}={_EXAMPLE[one.kind]}")
    return Limit(one, side, value)


def parse_regressions(texts: Iterable[str]) -> list[Regression]:
    """`FIGURE=CHANGE`, or a change alone, which stands for the figures that matter most. A later one replaces."""
    found: dict[str, Regression] = {}
    for text in texts:
        named = "=" in text
        names = [text.partition("=")[0].strip()] if named else list(DEFAULT_FIGURES)
        given = text.partition("=")[2].strip() if named else text.strip()
        for name in names:
            one = _regression(figure(name), given, text)
            if named or one.figure.name not in found:
                found[one.figure.name] = one
    return list(found.values())


def _regression(one: Figure, given: str, text: str) -> Regression:
    if one.kind == "count":
        raise StallbookError(
            "bad-limit", f"--max-regression {text!r:.80}: {one.name} is a count", "limit it with --max"
        )
    limit = Regression(one, 0.0)
    if limit.relative:
        value, example = _number(given, "%", 0.01), "5%"
    elif one.kind == "share":
        value, example = _number(given, "pt", 0.01), "5pt (percentage points)"
    else:
        value, example = _value(one, given), "100us"
    if value is None or value < 0:
        what = f"--max-regression {text!r:.80}: {given!r:.40} is no change of {one.name}"
        raise StallbookError("bad-limit", what, f"write it as in {one.name}={example}")
    return Regression(one, value)


def _parted(text: str, option: str) -> tuple[str, str]:
    name, equals, given = text.partition("=")
    if not equals or not given.strip():
        raise StallbookError("bad-limit", f"{option} {text!r:.80} has no value", f"write {option} itl.p99=50ms")
    return name.strip(), given.strip()


def _value(one: Figure, given: str) -> float | None:
    """The value in the figure's own unit; None where it is no value of its kind."""
    if one.kind == "time":
        found = re.fullmatch(r"([0-9.eE+]+)\s*(ns|us|µs|ms|s)", given)
        number = _float(found[1]) if found else None
        return None if found is None or number is None else number * _UNITS_MS[found[2]]
    if one.kind == "share":
        fraction = _number(given, "%", 0.01) if given.endswith("%") else _float(given)
        return fraction if fraction is not None and 0 <= fraction <= 1 else None
    return _float(given.removesuffix("/s") if one.kind == "rate" else given)


def _number(given: str, unit: str, scale: float) -> float | None:
    number = _float(given.removesuffix(unit)) if given.endswith(unit) else None
    return None if number is None else number * scale


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def shown(one: Figure, value: float) -> str:
    """A figure's value with its unit, for people; what is not 0 or all never reads as 0% or 100%."""
    if one.kind == "time":
        for unit, ms in (("s", 1e4), ("ms", 1.0), ("us", 0.0)):
            if value >= ms:
                return f"{rate(value / _UNITS_MS[unit])} {unit}"
    if one.kind == "share":
        return _percent(value)
    return rate(value)


def shown_change(limit: Regression, change: float) -> str:
    """A change for the worse or, below 0, for the better, with its unit."""
    size, way = abs(change), "better" if change < 0 else "worse"
    if limit.relative:
        return f"{_percent(size)} {way}"
    if limit.figure.kind == "share":
        return f"{_percent(size).removesuffix('%')} pt {way}"
    return f"{shown(limit.figure, size)} {way}"


def _percent(fraction: float) -> str:
    if 0 < fraction < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9995 <= fraction < 1 else f"{fraction * 100:.3g}%" if fraction < 10 else f"{fraction:,.0%}"
