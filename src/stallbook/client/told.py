"""Checks of single values in a client's log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

__all__ = ["WrongError", "clock", "count", "known", "name", "stamps"]

_LATEST: Final = 2**61
_MOST_TOKENS: Final = 2**31


class WrongError(Exception):
    """What is wrong with a line, in one clause."""


def known(holds: bool, what: str) -> None:
    """Refuse the line unless this holds."""
    if not holds:
        raise WrongError(what)


def name(value: Any) -> str:
    """An id that can be printed."""
    known(isinstance(value, str) and bool(value) and value.isprintable(), f"{value!r:.40} is no id of a request")
    return str(value)


def clock(value: Any) -> int:
    """A time in whole nanoseconds."""
    whole = type(value) is int and abs(value) < _LATEST
    known(whole, f"{value!r:.40} is no time in whole nanoseconds")
    return int(value)


def count(value: Any) -> int:
    """A number of tokens."""
    known(type(value) is int and 0 <= value < _MOST_TOKENS, f"{value!r:.40} is no number of tokens")
    return int(value)


def stamps(values: Sequence[Any], start: Any = None) -> list[int]:
    """Times that do not fall, none before the start."""
    times = [clock(value) for value in values]
    for early, late in pairwise([*([] if start is None else [clock(start)]), *times]):
        known(late >= early, f"a chunk at {late} lies before {early}: these are no times of one monotonic clock")
    return times
