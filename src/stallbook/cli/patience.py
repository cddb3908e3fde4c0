"""What a command is at, on stderr, once it takes longer than a moment; and nothing at all when it does not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["MOMENT_S", "current", "patience"]

MOMENT_S: Final = 2.0
"""Work that takes no longer than this says nothing."""


@contextmanager
def patience(doing: str) -> Iterator[Callable[[str], None]]:
    """What to call with each thing that is begun. On a terminal the last one stands there until the work is done;
    anywhere else one line says what takes so long.
    """
    line = _Line(doing)
    _LINES.append(line)
    alarm = threading.Timer(MOMENT_S, line.begin)  # by the clock: a single step may take all of the time
    alarm.daemon = True
    alarm.start()
    try:
        yield line.tell
    finally:
        alarm.cancel()
        line.end()
        _LINES.remove(line)


def current() -> Callable[[str], None] | None:
    """Where what is done inside tells how far it is; None where nobody waits patiently."""
    return _LINES[-1].tell if _LINES else None


class _Line:
    """The line on stderr, written by the alarm and by the work."""

    def __init__(self, doing: str) -> None:
        self._doing, self._what = doing, ""
        self._lock = threading.Lock()
        self._shown = self._over = False

    def tell(self, what: str) -> None:
        """This is begun."""
        with self._lock:
            changed, self._what = what != self._what, what
            if self._shown and changed:
                self._draw()

    def begin(self) -> None:
        """The moment has passed."""
        with self._lock:
            if self._over:
                return
            self._shown = True
            if sys.stderr.isatty():
                self._draw()
            else:
                _say(f"{self._doing} ...\n")

    def end(self) -> None:
        """Leave nothing behind on a terminal."""
        with self._lock:
            self._over = True
            if self._shown and sys.stderr.isatty():
                _say("\r\x1b[2K")

    def _draw(self) -> None:
        if sys.stderr.isatty():
            _say(f"\r\x1b[2K{f'{self._doing}: {_plain(self._what)}'.rstrip(': ')[:74]} ...")


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # if nobody listens, the work goes on
        sys.stderr.write(text)
        sys.stderr.flush()


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


_LINES: list[_Line] = []
"""Those that are on stderr now."""
