"""What a command is at, on stderr, once it takes longer than a moment; and nothing at all when it does not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["MOMENT_S", "patience"]

MOMENT_S: Final = 2.0
"""Work that takes no longer than this says nothing."""


@contextmanager
def patience(doing: str) -> Iterator[Callable[[str], None]]:
    """What to call with each thing that is begun; the last one stands on a terminal until the work is done."""
    began = time.monotonic()
    watched = sys.stderr.isatty()
    told = False

    def tell(what: str) -> None:
        nonlocal told
        if time.monotonic() - began < MOMENT_S:
            return
        if watched:
            print(f"\r\x1b[2K{doing}: {_plain(what)[:60]} ...", end="", file=sys.stderr, flush=True)
        elif not told:  # a line in a log is enough
            print(f"{doing} ...", file=sys.stderr, flush=True)
        told = True

    try:
        yield tell
    finally:
        if told and watched:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
