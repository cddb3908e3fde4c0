"""The spool: an append-only file of checked records, written by one process. See docs/format.md.

A record is an 8-byte word and a payload. The payload is written first and the word, one aligned store, last, so a
reader that meets a zero word is at the end of what was committed, whenever the writer was killed. The word
carries the payload's length, kind and CRC-32; the CRC tells a page that a power loss lost from one that it kept.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

__all__ = ["CHUNK", "HEADS", "MAGIC", "VERSION", "MemorySpool", "Spool", "head", "layout", "spool_name"]

VERSION: Final = 1
"""History. 1: the first."""
MAGIC: Final = b"STALSP" + VERSION.to_bytes(2, "little")
CHUNK: Final = 1 << 18
"""Growth of the file. Mapping and prefaulting 256 KiB costs about 50 us, once in some two thousand steps."""

(PAD, HELLO, NAME, ARRIVE, ADMIT, EVICT, READMIT, FINISH, HOLD, RELEASE, STEP, STEP_OS, STEP_DELAYS, STEP_WIDE,
 STEP_OS_WIDE, STEP_DELAYS_WIDE, PAUSE, PROBE, DELIVER, RESTART, FACT, STATE) = range(1, 23)  # fmt: skip

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
R_STATE: Final = Struct("<qqq")  # dropped, errors, self ns

# A step's head; the names of its marks, a byte each; their times, each with the run-queue delay since the mark before
# it where there is one for each segment; and with OS counters the step's CPU time and a delay: that of the whole step,
# or the one since its last mark. A mark starts the segment that it names and ends the one before it (NO_NAME only
# ends), and so does the end of the step. Wide kinds hold what the others cannot.
_NARROW, _WIDE = "<IqIiBBHhhii", "<qqqqBBHqqqq"
HEADS: Final = {
    STEP: _NARROW, STEP_OS: _NARROW, STEP_DELAYS: _NARROW,
    STEP_WIDE: _WIDE, STEP_OS_WIDE: _WIDE, STEP_DELAYS_WIDE: _WIDE,
}  # fmt: skip
"""id, t0, t1 - t0, emission - t0, graph, flags, marks, padded, decode tokens, prefill tokens, KV tokens."""
MARKS: Final = {STEP: "q", STEP_OS: "q", STEP_DELAYS: "qi", STEP_WIDE: "q", STEP_OS_WIDE: "q", STEP_DELAYS_WIDE: "qq"}
ENDS: Final = {STEP: "", STEP_OS: "ii", STEP_DELAYS: "ii", STEP_WIDE: "", STEP_OS_WIDE: "qq", STEP_DELAYS_WIDE: "qq"}
WIDE: Final = {STEP: STEP_WIDE, STEP_OS: STEP_OS_WIDE, STEP_DELAYS: STEP_DELAYS_WIDE}
NO_NAME: Final = 0xFF
EMITS_BATCH, HAS_TAIL, MEMBERS_UNKNOWN, EMITS, MEMBERS_EXACT = 1, 2, 4, 8, 16
"""Flags of a step: a token for each of the batch; a tail follows; batch not recorded; it ran a forward pass; its
members are those of the tail alone, not those too that emit."""
R_TAIL: Final = Struct("<IIIII")
"""Lengths of the tail's lists: batch changes, emissions, members, owners, windows. In 32-bit words: a change is
handle * 2 + (1 if it left); an emission handle, tokens; an owner mark, handle; the windows are of R_WINDOW."""
R_WINDOW: Final = Struct("<HHiqqq")  # name, device, request, t0, t1, run delay
_WORD_LIMIT: Final = 1 << 24
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, Linux 5.14; not yet a name in `mmap`


@functools.lru_cache(maxsize=512)
def head(kind: int, marks: int) -> Struct:
    """The layout of a step record of that kind, without its tail."""
    return Struct(HEADS[kind] + f"{marks}s" + MARKS[kind] * marks + ENDS[kind])


def layout(kind: int, marks: int) -> tuple[Callable[..., bytes], int, int]:
    """For a step without a tail: how to pack it, the low half of its word, and its size in the file."""
    step = head(kind, marks)
    return step.pack, kind << 24 | step.size, (step.size + 15) & ~7


def spool_name(process: str) -> str:
    """The file that a process writes: `worker:0` to `worker-0.spool`."""
    return "".join(c if c.isalnum() or c in "._" else "-" for c in process) + ".spool"


class MemorySpool:
    """A sink for calibration: the same work, on a mapping without a file, used as a ring."""

    __slots__ = ("limit", "mapped", "pos", "words")

    def __init__(self) -> None:
        self.pos, self.limit = 0, 0
        self.grow(CHUNK)

    def append(self, kind: int, payload: bytes) -> None:
        """Commit one record."""
        # `Recorder.end` has these lines too. A collection can start in them, but a GC callback never appends.
        low = kind << 24 | len(payload)
        size = (len(payload) + 15) & ~7
        if self.pos + size > self.limit:
            self.grow(size)
        pos = self.pos
        at = pos + 8
        self.mapped[at : at + len(payload)] = payload
        self.words[pos >> 3] = crc32(payload, low) << 32 | low
        self.pos = pos + size

    def grow(self, size: int) -> None:
        """Make room for a record of that size."""
        if size > CHUNK:
            raise OSError("record too long")
        if not self.limit:
            self._set(mmap.mmap(-1, CHUNK))
        self.pos = 0

    def _set(self, mapped: mmap.mmap) -> None:
        self.mapped, self.limit = mapped, len(mapped)
        self.words = memoryview(mapped).cast("Q")
        with contextlib.suppress(OSError, ValueError):
            mapped.madvise(_POPULATE_WRITE)

    def close(self) -> None:
        """Unmap."""
        self.limit = self.pos = 0
        self.words.release()
        self.mapped.close()

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
        self.mapped[:8] = MAGIC
        self.pos = 8

    def grow(self, size: int) -> None:
        """Map the next chunk. On a full disk this raises, where a write to a hole of the file would kill the engine."""
        if size >= _WORD_LIMIT:
            raise OSError("record too long")
        length = -(-size // CHUNK) * CHUNK
        base = self._base + self.limit
        _allocate(self._fd, base, length)
        mapped = mmap.mmap(self._fd, length, offset=base)
        if self.limit:
            self._pad()
            self.words.release()
            self.mapped.close()
        self._base, self.pos = base, 0
        self._set(mapped)

    def _pad(self) -> None:
        """Say that the rest of this chunk is empty."""
        rest = self.limit - self.pos
        if rest:
            low = PAD << 24 | rest - 8
            self.words[self.pos >> 3] = crc32(b"pad", low) << 32 | low

    def close(self) -> None:
        """Unmap, and give back what the last chunk did not use."""
        if self._fd < 0:
            return
        end = self._base + self.pos
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
