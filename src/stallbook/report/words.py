"""How a report's text says numbers, spans of time, counts and lists; the digits are those of `stallbook.digits`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stallbook.digits import percent, rate

__all__ = [
    "UNKNOWN_TEXT",
    "bar",
    "compact",
    "count",
    "many",
    "mark_of",
    "marks",
    "missing",
    "ms",
    "name",
    "percent",
    "percentiles",
    "plain",
    "rate",
    "seconds",
    "shares",
    "signed_percent",
    "unit",
    "whole",
]

UNKNOWN_TEXT: Final = "not recorded"

_MARKS: Final = {
    "clean": "·", "prefill": "P", "preempt": "S", "graph": "C", "gc": "G", "tok": "T", "fwd": "·", "residual": "?",
    "os": "O", "slow": "L", "unscheduled": "U", "pad": "·", "sched": "H", "sample": "M", "output": "W",
    "frontend": "F", "network": "N", "queue": "Q",
}  # fmt: skip
_OTHER_MARKS: Final = "KXYZABDEIJRV"


def plain(text: str) -> str:
    """A name out of a log, on one line and with nothing that a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def signed_percent(change: float) -> str:
    """A change, with its sign."""
    return f"{change:+.1%}"


def ms(value: float | None) -> str:
    """A duration in ms to about three digits, without its unit."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return "<0.001"
    for limit, digits in ((1, 3), (10, 2), (100, 1)):
        if round(abs(value), digits) < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def unit(value: float | None) -> str:
    """A duration in ms with its unit; seconds where ms would have five digits."""
    if value is None:
        return "-"
    return f"{value / 1e3:,.1f} s" if value >= 10_000 else f"{ms(value)} ms"


def seconds(ns: float) -> str:
    """Nanoseconds as seconds, to about three digits."""
    return f"{ns / 1e9:,.1f} s" if abs(ns) >= 1e10 else f"{ns / 1e9:.2f} s"


def whole(share: float) -> str:
    """A share in whole percent, its ends kept for exact 0 and 1."""
    return f"{share:.0%}" if 0.01 <= share <= 0.99 or share == 1 else percent(share)


def name(cause: str) -> str:
    """A cause in a sentence."""
    return {"fwd": "the forward pass", "residual": "unexplained"}.get(cause, plain(cause))


def shares(of: dict[str, float], most: int = 7) -> str:
    """The largest shares in falling order, the others as one figure; what holds nothing is left out."""
    told = sorted((c for c in of if of[c]), key=lambda c: -of[c])
    shown = told if len(told) == most + 1 else told[:most]
    text = [f"{plain(cause)} {percent(of[cause])}" for cause in shown]
    if rest := told[len(shown) :]:
        text.append(f"{len(rest)} others {percent(sum(of[cause] for cause in rest))}")
    return ", ".join(text)


def percentiles(values: dict[str, float | None]) -> str:
    """Durations in ms with their names."""
    return "   ".join(f"{key} {ms(value)}" for key, value in values.items())


def count(value: int | None) -> str:
    """How many, or that it was not recorded."""
    return UNKNOWN_TEXT if value is None else f"{value:,}"


def many(n: int, noun: str) -> str:
    """How many of what, in the singular where it is one."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def missing(notes: Mapping[str, int]) -> str:
    """What of a log could not be read, to stand behind its name: the figures are of the rest. Empty if it is whole."""
    if lost := sum(notes.get(slug, 0) for slug in ("cut_bytes", "corrupt_bytes")):
        return f"; NOT WHOLE: {many(lost, 'byte')} of it could not be read"
    return "; ends in the middle of a record" if notes.get("torn_tail_bytes") else ""


def compact(n: int) -> str:
    """How many, in four characters or so."""
    for limit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if n >= limit:
            return f"{n / limit:.1f}{letter}" if n < 10 * limit else f"{n // limit:,}{letter}"
    return f"{n}"


def bar(share: float, width: int) -> str:
    """A bar of eighths; anything but 0 shows."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    whole, part = divmod(min(eighths, width * 8), 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[part]


def mark_of(causes: tuple[str, ...]) -> dict[str, str]:
    """The letter of each cause (and of clean) in the histogram; named segments take what is left, in order."""
    left = iter(_OTHER_MARKS)
    return {cause: _MARKS.get(cause) or next(left, "+") for cause in ("clean", *causes)}


def marks(counts: dict[str, int], letters: dict[str, str], width: int) -> str:
    """`counts` as a line of letters in proportion; each cause that occurs gets one letter at least."""
    total = sum(counts.values())
    if not total:
        return ""
    present = {cause: n for cause, n in counts.items() if n}
    exact = {cause: n * width / total for cause, n in present.items()}
    cells = {cause: max(1, int(share)) for cause, share in exact.items()}
    while sum(cells.values()) < width:
        cells[max(cells, key=lambda cause: exact[cause] - cells[cause])] += 1
    while sum(cells.values()) > width and max(cells.values()) > 1:
        cells[max((c for c in cells if cells[c] > 1), key=lambda cause: cells[cause] - exact[cause])] -= 1
    return "".join(letters[cause] * n for cause, n in cells.items())[:width]
