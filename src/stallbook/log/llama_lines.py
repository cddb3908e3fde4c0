"""The lines of a llama.cpp log, one at a time, with their stamps: `[MINUTES.SS.mmm.uuu] LEVEL MESSAGE`.

One thread of the server writes them all, in the order of their stamps, so that a stamp that falls belongs to a line
that something garbled. Messages may hold line ends (what follows has no stamp and belongs to the line before) or lack
theirs (then the next message goes on in the same line). A last line without its end was cut off.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from stallbook.errors import StallbookError

__all__ = ["Line", "Progress", "is_events", "is_llama", "lines"]

Progress = Callable[[int, int], None]
"""Called now and then with the bytes that were read, and those there are."""

_COLOUR: Final = re.compile(rb"\x1b\[[0-9;]*m")
_STAMP: Final = re.compile(rb"(\d{1,7})\.([0-5]\d)\.(\d{3})\.(\d{3}) ([DIWE]) ([^\r\n]*)")
_ANYWHERE: Final = re.compile(rb"(?m)^\d{1,7}\.[0-5]\d\.\d{3}\.\d{3} [DIWE] ")
_NESTED: Final = re.compile(rb"\d{1,7}\.[0-5]\d\.\d{3}\.\d{3} [DIWE] (?:srv|slot|que|res) ")
_TEXT: Final = re.compile(rb"streamed chunk: |next token: |[Pp]arsed message|equest: |esponse: |prompt: ")
"""What comes after these is the user's or the model's text, in which anything may stand."""
_WITHOUT_END: Final = b"assuming pure content parser."
"""A message that the server writes without a line end; nothing is wrong where one follows it."""
_WORDS: Final = re.compile(
    rb"(?m)^(?:\S+ )?(?:srv  +\w+|slot +\w+|que  +\w+|llama_model_loader|build_info|print_info): "
)
"""How lines begin in a log whose stamps were switched off."""

_LONGEST: Final = 64 << 20
_EVERY: Final = 1 << 14
"""Lines between two calls of the progress."""
_FALLS: Final = 3
"""So many stamps in a row below one before are no garbled line: the clock was set, or another log begins."""


class Line(NamedTuple):
    """A message: its place in the file, its stamp in ns since the server started, and what it says."""

    number: int
    t: int
    text: bytes


def is_llama(head: bytes) -> bool:
    """Whether a file begins as a log of llama.cpp, stamped or not; other output may stand before it."""
    start = _COLOUR.sub(b"", _unpacked(head)).lstrip()
    return not start.startswith(b"{") and bool(_ANYWHERE.search(start) or _WORDS.search(start))


def is_events(head: bytes) -> bool:
    """Whether a file's first bytes are those of server-sent events, as a client gets them."""
    return _unpacked(head).lstrip().startswith((b"data: {", b"data:{"))


def lines(path: Path, notes: Counter[str], progress: Progress | None = None) -> Iterator[Line]:
    """All messages with a stamp, in the order of time; counts what had to be left out."""
    return _in_order(path, _stamped(path, notes, progress), notes)


def _unpacked(head: bytes) -> bytes:
    """The first bytes of a file, unpacked if it is gzipped."""
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 1 << 14)
    except zlib.error:
        return b""


def _stamped(path: Path, notes: Counter[str], progress: Progress | None) -> Iterator[Line]:
    total = path.stat().st_size
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        with cast(BinaryIO, gzip.open(plain)) if packed else plain as file:
            number = 0
            try:
                while raw := file.readline(_LONGEST):
                    number += 1
                    if progress is not None and number % _EVERY == 0:
                        progress(plain.tell(), total)
                    if not raw.endswith(b"\n"):
                        notes["torn_tail_bytes" if len(raw) < _LONGEST else "garbled_lines"] += (
                            len(raw) if len(raw) < _LONGEST else 1
                        )
                        continue
                    yield from _parsed(number, raw, notes)
            except (EOFError, zlib.error):
                notes["torn_tail_bytes"] += 1  # a gzip file that was cut off: what came before is good


def _parsed(number: int, raw: bytes, notes: Counter[str]) -> Iterator[Line]:
    if b"\x1b" in raw:
        raw = _COLOUR.sub(b"", raw)
    found = _STAMP.match(raw)
    if found is None:
        # Most lines without a stamp go on with the message before; one that holds a stamp was written into.
        if (nested := _NESTED.search(raw)) is None or _TEXT.search(raw, 0, nested.start()):
            return
        notes["garbled_lines"] += 1
        found = _STAMP.match(raw, nested.start())
        assert found is not None
    text = found[6]
    yield Line(number, _time(found), text)
    while (nested := _NESTED.search(text)) and not _TEXT.search(text, 0, nested.start()):
        if not text[: nested.start()].endswith(_WITHOUT_END):
            notes["garbled_lines"] += 1
        found = _STAMP.match(text, nested.start())
        assert found is not None
        text = found[6]
        yield Line(number, _time(found), text)


def _time(found: re.Match[bytes]) -> int:
    minutes, seconds, milli, micro = (int(found[i]) for i in range(1, 5))
    return (((minutes * 60 + seconds) * 1000 + milli) * 1000 + micro) * 1000


def _in_order(path: Path, told: Iterator[Line], notes: Counter[str]) -> Iterator[Line]:
    """Leave out the lines whose stamps do not fit between those around them."""
    held: Line | None = None  # not passed on before the next one has shown that its stamp is right
    last, falls = -1, 0
    for line in told:
        if held is None:
            held = line
        elif line.t >= held.t:
            yield held
            last, held, falls = held.t, line, 0
        elif line.t >= last:  # the one before was ahead of its time
            notes["garbled_lines"] += 1
            held = line
        else:
            falls += 1
            if falls >= _FALLS:
                raise _backwards(path, line, held)
            notes["garbled_lines"] += 1
    if held is not None:
        yield held


def _backwards(path: Path, line: Line, before: Line) -> StallbookError:
    what = f"its stamps fall from {before.t / 1e9:.6f} s to {line.t / 1e9:.6f} s"
    remedy = "keep each server's log in a file of its own; where it is one server's, the clock was set: record again"
    return StallbookError("backwards", what, remedy, f"{path}:{line.number}")
