"""The spool: an append-only file of checked records, written by one process. See docs/format.md.

A record is an 8-byte word and a payload. The payload is written first and the word, one aligned store, last, so a
reader that meets a zero word is at the end of what was committed, whenever the writer was killed. The word
carries the payload's length, kind and CRC-32; the CRC tells a page that a power loss lost from one that it kept.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final, Protocol
from zlib import crc32

__all__ = ["CHUNK", "HEADS", "MAGIC", "VERSION", "MemorySpool", "Sink", "Spool", "head", "spool_name"]

VERSION: Final = 1
"""History. 1: the first."""
MAGIC: Final = b"STALSP" + VERSION.to_bytes(2, "little")
CHUNK: Final = 1 << 18
"""Growth of the file. Mapping and prefaulting 256 KiB costs about 50 us, once in some two thousand steps."""

(PAD, HELLO, NAME, ARRIVE, ADMIT, EVICT, READMIT, FINISH, HOLD, RELEASE, STEP, STEP_MARKS_DELAY, STEP_WIDE,
 STEP_WIDE_DELAY, PAUSE, PROBE, DELIVER, RESTART, FACT, STATE) = range(1, 21)  # fmt: skip

# Payloads. Times are absolute; -1 is "not recorded"; text (UTF-8) fills what is left of the payload.
R_NAME: Final = Struct("<H")  # index; text
R_ARRIVE: Final = Struct("<Iqqq")  # handle, t, prompt tokens, max tokens; text
R_REQUEST: Final = Struct("<Iq")  # handle, t: ADMIT, READMIT, FINISH
R_EVICT: Final = Struct("<Iqqb")  # handle, t, lost tokens, recompute
R_HOLD: Final = Struct("<IqH")  # handle, t, kind: HOLD, RELEASE
R_PAUSE: Final = Struct("<qqhh")  # t0, t1, generation, process (name index, -1: the spool's own)
R_PROBE: Final = Struct("<qq")  # t, ns
R_DELIVER: Final = Struct("<Iqqb")  # handle, t, tokens, boundary
R_RESTART: Final = Struct("<q")  # t
R_STATE: Final = Struct("<qqqq")  # steps, dropped, errors, self ns

# A step's head, then its marks: (name, t - t0[, run delay since the mark before]). A mark starts the segment it names
# and ends the one before it; NO_NAME only ends. Wide steps hold what 31 bits do not.
HEADS: Final = {
    STEP: "<IqiiiiBBHiiii", STEP_MARKS_DELAY: "<IqiiiiBBHiiii",
    STEP_WIDE: "<qqqqqqBBHqqqq", STEP_WIDE_DELAY: "<qqqqqqBBHqqqq",
}  # fmt: skip
"""id, t0, t1 - t0, emission - t0, cpu, run delay, graph, flags, marks, padded, decode, prefill, KV tokens."""
MARKS: Final = {STEP: "Hi", STEP_MARKS_DELAY: "Hii", STEP_WIDE: "Hq", STEP_WIDE_DELAY: "Hqq"}
NO_NAME: Final = 0xFFFF
EMITS_BATCH, HAS_TAIL, MEMBERS_UNKNOWN, EMITS = 1, 2, 4, 8
"""Flags of a step: a token for each of the batch; a tail follows; batch not recorded; it ran a forward pass."""
R_TAIL: Final = Struct("<IIIII")
"""Lengths of the tail's lists: batch changes, emissions, members, owners, windows. In 32-bit words: a change is
handle * 2 + (1 if it left); an emission handle, tokens; an owner mark, handle; the windows are of R_WINDOW."""
R_WINDOW: Final = Struct("<HHiqqq")  # name, device, request, t0, t1, run delay
_WORD_LIMIT: Final = 1 << 24
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, Linux 5.14; not yet a name in `mmap`


def head(kind: int, marks: int) -> Struct:
    """The layout of a step record of that kind, without its tail."""
    return Struct(HEADS[kind] + MARKS[kind] * marks)


def spool_name(process: str) -> str:
    """The file that a process writes: `worker:0` to `worker-0.spool`."""
    return "".join(c if c.isalnum() or c in "._" else "-" for c in process) + ".spool"


class Sink(Protocol):
    """Where records go."""

    def append(self, kind: int, payload: bytes) -> None:
        """Commit one record; raises OSError when there is no room for it."""

    def close(self) -> None:
        """Give back what the last chunk did not use."""

    def abandon(self) -> None:
        """Let go without writing: the file is another process's (after a fork)."""


class MemorySpool:
    """A sink for calibration: the same work, on a mapping without a file, used as a ring."""

    __slots__ = ("_limit", "_map", "_pos", "_words")

    def __init__(self) -> None:
        self._pos, self._limit = 0, 0
        self._grow(CHUNK)

    def append(self, kind: int, payload: bytes) -> None:
        """Commit one record."""
        # This is the hot path of the recorder. A collection can start in it, but a GC callback never appends.
        n = len(payload)
        low = kind << 24 | n
        size = (n + 15) & ~7
        if self._pos + size > self._limit:
            self._grow(size)
        pos = self._pos
        self._map[pos + 8 : pos + 8 + n] = payload
        self._words[pos >> 3] = crc32(payload, low) << 32 | low
        self._pos = pos + size

    def _grow(self, size: int) -> None:
        if size > CHUNK:
            raise OSError("record too long")
        if not self._limit:
            self._set(mmap.mmap(-1, CHUNK))
        self._pos = 0

    def _set(self, mapped: mmap.mmap) -> None:
        self._map, self._limit = mapped, len(mapped)
        self._words = memoryview(mapped).cast("Q")
        with contextlib.suppress(OSError, ValueError):
            mapped.madvise(_POPULATE_WRITE)

    def close(self) -> None:
        """Unmap."""
        self._limit = self._pos = 0
        self._words.release()
        self._map.close()

    def abandon(self) -> None:
        """Unmap."""
        self.close()


class Spool(MemorySpool):
    """A sink that is a file, mapped a chunk at a time. A record never straddles two chunks."""

    __slots__ = ("_base", "_fd")

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._base = 0
        try:
            super().__init__()
        except BaseException:
            os.close(self._fd)
            raise
        self._map[:8] = MAGIC
        self._pos = 8

    def _grow(self, size: int) -> None:
        """Map the next chunk. On a full disk this raises, where a write to a hole of the file would kill the engine."""
        if size >= _WORD_LIMIT:
            raise OSError("record too long")
        length = -(-size // CHUNK) * CHUNK
        base = self._base + self._limit
        _allocate(self._fd, base, length)
        mapped = mmap.mmap(self._fd, length, offset=base)
        if self._limit:
            self._pad()
            self._words.release()
            self._map.close()
        self._base, self._pos = base, 0
        self._set(mapped)

    def _pad(self) -> None:
        """Say that the rest of this chunk is empty."""
        rest = self._limit - self._pos
        if rest:
            low = PAD << 24 | rest - 8
            self._words[self._pos >> 3] = crc32(b"pad", low) << 32 | low

    def close(self) -> None:
        """Unmap, and give back what the last chunk did not use."""
        if self._fd < 0:
            return
        end = self._base + self._pos
        super().close()
        try:
            os.ftruncate(self._fd, end)
        finally:
            os.close(self._fd)
            self._fd = -1

    def abandon(self) -> None:
        """Unmap and close without a write: after a fork the file is the parent's."""
        if self._fd >= 0:
            super().close()
            os.close(self._fd)
            self._fd = -1


def _allocate(fd: int, offset: int, length: int) -> None:
    """Make the blocks real, so that a full disk is an error here and not a SIGBUS later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, offset, length)
        return
    zeros = bytes(length)  # macOS
    done = 0
    while done < length:
        done += os.pwrite(fd, zeros[done:], offset + done)
