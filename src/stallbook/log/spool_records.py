"""A spool's committed records: where they end, and what vouches for them. See docs/format.md."""

from __future__ import annotations

import errno
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from stallbook.errors import StallbookError
from stallbook.record import spool as f

__all__ = ["committed", "plain_file", "spool_bytes"]

_HEAD_WORD: Final = struct.Struct("<I")
_COMMIT_WORD: Final = struct.Struct("<Q")


def plain_file(path: Path) -> bytes:
    """The bytes of a regular file; of anything else an OSError, where reading might wait or never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return path.read_bytes()


def spool_bytes(path: Path) -> bytes:
    """What is in a spool of this version; nothing if its process was killed before it wrote anything."""
    try:
        data = plain_file(path)
    except OSError as error:
        raise StallbookError("unreadable", error.strerror or str(error), "check the file", str(path)) from None
    if not data.strip(b"\0"):
        return b""
    if data[:6] != f.MAGIC[:6]:
        raise StallbookError("foreign", "not a spool of a stallbook log", "remove it from the folder", str(path))
    version = int.from_bytes(data[6:8], "little")
    if not 1 <= version <= f.VERSION:
        what = f"format {version}, this version reads up to {f.VERSION}"
        raise StallbookError("version", what, "open it with the stallbook that wrote it", str(path))
    return data


def committed(data: bytes, notes: Counter[str]) -> Iterator[tuple[int, int, memoryview]]:
    """The committed records. What follows the last one, if it is not empty, is counted in the notes.

    Records wait for the CHECK that follows them. Those that none follows are good if the file ends there as one does
    whose writer was killed; if it ends in another way, nothing vouches for them.
    """
    view = memoryview(data)
    waiting: list[tuple[int, int, memoryview]] = []
    pos = block = 8
    while (record := _record(view, pos)) is not None:
        kind, payload, end = record
        if kind == f.CHECK:
            if f.R_CHECK.unpack(payload)[0] != crc32(view[block:pos]):
                notes["corrupt_bytes"] += len(data) - block
                return
            yield from waiting
            waiting.clear()
        elif kind != f.PAD:
            waiting.append((pos, kind, payload))
        pos = end
        if kind in (f.CHECK, f.PAD):
            block = pos
    slug = _ending(data, pos)
    if slug != "torn_tail_bytes":
        notes[slug] += len(data) - block
        return
    yield from waiting
    if rest := len(data[pos:].rstrip(b"\0")):
        notes[slug] += rest


def _record(view: memoryview, pos: int) -> tuple[int, memoryview, int] | None:
    """Kind, payload and end of the record at `pos`, if one was committed there."""
    if pos + 16 > len(view):
        return None
    (head,) = _HEAD_WORD.unpack_from(view, pos)
    n = head & 0xFFFFFF
    end = pos + (n + 11 & ~7) + 8
    if not head or end > len(view) or _COMMIT_WORD.unpack_from(view, end - 8)[0] != f.word_of(head):
        return None
    return head >> 24, view[pos + 4 : pos + 4 + n], end


def _ending(data: bytes, pos: int) -> str:
    """What is at `pos`, where no record is: what a killed writer leaves, a file cut short, or disorder."""
    if len(data) - pos < 16:
        return "cut_bytes" if data[pos:].strip(b"\0") else "torn_tail_bytes"
    (head,) = _HEAD_WORD.unpack_from(data, pos)
    end = pos + ((head & 0xFFFFFF) + 11 & ~7) + 8
    if end > len(data):
        return "cut_bytes"
    killed = not head or not data[end - 8 :].strip(b"\0")
    return "torn_tail_bytes" if killed else "corrupt_bytes"
