"""The spool: an append-only file of checked records, written by one process. See docs/format.md.

A record is a head (its kind and length), a payload, and a commit word, which repeats the head and is written last: one
aligned store. A reader that does not find the word is at the end of what was committed, whenever the writer was killed.
Now and then a CHECK record holds the CRC-32 of all since the one before: it tells what a power loss or a bad disk did.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from time import perf_counter_ns
from typing import Final
from zlib import crc32

__all__ = ["BLOCK", "BODIES", "CHUNK", "MAGIC", "VERSION", "Spool", "body", "layout", "spool_name", "word_of"]

VERSION: Final = 4
"""History. 1: the first. 2: a step's fields are aligned; what blocked admission; PROMPT. 3: DELIVERED and
DELIVERED_AGAIN; the steps of other processes are read for what they add to the engine's. 4: NOTED and NOTES: what an
adapter's hooks saw may be kept as it is, and told as records by the reader."""
MAGIC: Final = b"STALSP" + VERSION.to_bytes(2, "little")
BLOCK: Final = 1 << 15
"""What one CHECK vouches for, about."""
CHUNK: Final = 1 << 18
"""Growth of the file. Mapping 256 KiB costs about 100 us, once in some two thousand steps."""

(PAD, HELLO, NAME, ARRIVE, ADMIT, EVICT, READMIT, FINISH, HOLD, RELEASE, STEP, STEP_OS, STEP_DELAYS, STEP_WIDE,
 STEP_OS_WIDE, STEP_DELAYS_WIDE, PAUSE, PROBE, DELIVER, RESTART, FACT, STATE, CHECK, PROMPT,
 REFUSED, DELIVERED, DELIVERED_AGAIN, NOTED, NOTES) = range(1, 30)  # fmt: skip

# Payloads. Times are absolute; -1 is "not recorded"; text (UTF-8) fills what is left of the payload.
R_NAME: Final = Struct("<H")  # index; text
R_ARRIVE: Final = Struct("<Iqqq")  # handle, t, prompt tokens, max tokens; text
R_PROMPT: Final = Struct("<Iq")  # handle, prompt tokens: known only after the arrival
R_REQUEST: Final = Struct("<Iq")  # handle, t: ADMIT, READMIT, FINISH
R_EVICT: Final = Struct("<Iqqb")  # handle, t, lost tokens, recompute
R_HOLD: Final = Struct("<IqH")  # handle, t, kind: HOLD, RELEASE
R_PAUSE: Final = Struct("<qqhh")  # t0, t1, generation, process (name index, -1: the spool's own)
R_PROBE: Final = Struct("<qq")  # t, ns
R_DELIVER: Final = Struct("<Iqqb")  # handle, t, tokens, boundary
R_DELIVERED: Final = Struct("<qq")  # t, boundary; then handle, tokens, ... as 32-bit words
R_AGAIN: Final = Struct("<q")  # t: as the last DELIVERED
R_RESTART: Final = Struct("<q")  # t
R_NOTES: Final = Struct("<qqq")  # t, run-queue delay since the last, number; then 64-bit words. See stallbook.notes
R_STATE: Final = Struct("<qqq")  # dropped, errors, self ns
R_REFUSED: Final = Struct("<q")  # calls refused so far
R_CHECK: Final = Struct("<I")  # CRC-32 of all since the end of the last CHECK or PAD

# A step's head; the times of its marks; where there is one for each segment, the run-queue delays since the mark
# before; with OS counters the step's CPU time and a delay: that of the whole step, or the one since its last mark; and
# the names of the marks. A mark starts the segment that it names and ends the one before it (NO_NAME only ends), and so
# does the end of the step. Wide kinds hold what the others cannot. All lies where a C compiler would put it.
_NARROW, _WIDE = "HBBqIIiiihh", "HBBqqqqqqqq"
BODIES: Final = {
    STEP: _NARROW, STEP_OS: _NARROW, STEP_DELAYS: _NARROW,
    STEP_WIDE: _WIDE, STEP_OS_WIDE: _WIDE, STEP_DELAYS_WIDE: _WIDE,
}  # fmt: skip
"""Marks, graph, flags, t0, id, t1 - t0, emission - t0, prefill tokens, KV tokens, padded, decode tokens."""
DELAYS: Final = {STEP: "", STEP_OS: "", STEP_DELAYS: "i", STEP_WIDE: "", STEP_OS_WIDE: "", STEP_DELAYS_WIDE: "q"}
ENDS: Final = {STEP: "", STEP_OS: "ii", STEP_DELAYS: "ii", STEP_WIDE: "", STEP_OS_WIDE: "qq", STEP_DELAYS_WIDE: "qq"}
WIDE: Final = {STEP: STEP_WIDE, STEP_OS: STEP_OS_WIDE, STEP_DELAYS: STEP_DELAYS_WIDE}
NO_NAME: Final = 0xFF
EMITS_BATCH, HAS_TAIL, MEMBERS_UNKNOWN, EMITS, MEMBERS_EXACT = 1, 2, 4, 8, 16
"""Flags of a step: a token for each of the batch; a tail follows; batch not recorded; it ran a forward pass; its
members are those of the tail alone, not those too that emit."""
BLOCKED_SHIFT: Final = 5
"""In the three bits above the flags: 1 + what kept the first waiting request out, 0 where that was not told."""
R_TAIL: Final = Struct("<IIIII")
"""Lengths of the tail's lists: batch changes, emissions, members, owners, windows. In 32-bit words: a change is
handle * 2 + (1 if it left); an emission handle, tokens; an owner mark, handle; the windows are of R_WINDOW."""
R_WINDOW: Final = Struct("<HHiqqq")  # name, device, request, t0, t1, run delay
_NATIVE: Final = sys.byteorder == "little" and Struct("l").size == 8
_LONGEST: Final = (1 << 24) - 32
_CHECK_SIZE: Final = 16
_CLOSING: Final = 32
"""What a chunk keeps free at its end: room for a CHECK and the smallest PAD."""
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, Linux 5.14; not yet a name in `mmap`


def word_of(head: int) -> int:
    """The commit word of a record: its head, and the head's complement."""
    return (head ^ 0xFFFFFFFF) << 32 | head


@functools.lru_cache(maxsize=512)
def body(kind: int, marks: int) -> Struct:
    """The payload of a step of that kind, without its tail."""
    return Struct("<" + _fields(kind, marks))


def _fields(kind: int, marks: int) -> str:
    delays = f"{marks}{DELAYS[kind]}" if DELAYS[kind] else ""
    return f"{BODIES[kind]}{marks}q{delays}{ENDS[kind]}{marks}B"


def layout(kind: int, marks: int) -> tuple[Callable[..., None], int, int, int]:
    """For a step without a tail: how to pack the whole record in place, its head, its commit word, and its size."""
    length = body(kind, marks).size
    fields = f"I{_fields(kind, marks)}{-(length + 4) % 8}xQ"
    # `struct` packs a C long twice as fast as a "q", and alignment changes nothing here.
    record = Struct("@" + fields.replace("q", "l").replace("Q", "L") if _NATIVE else "<" + fields)
    head = kind << 24 | length
    return record.pack_into, head, word_of(head), record.size


def spool_name(process: str) -> str:
    """The file that a process writes: `worker:0` to `worker-0.spool`."""
    return "".join(c if c.isalnum() or c in "._" else "-" for c in process) + ".spool"


class Spool:
    """A file, mapped a chunk at a time. A record never straddles two chunks."""

    __slots__ = ("_base", "_checked", "_fd", "_mapped", "_ready", "_words", "block", "grow_ns", "pos", "window")

    def __init__(self, path: Path, checked: Callable[[], None]) -> None:
        """`checked` is called after each CHECK but the last."""
        self._checked = checked
        self.grow_ns = 0
        """What `grow` took, in all."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._base = 0
        try:
            self._set(self._chunk(CHUNK), 8)
        except BaseException:
            os.close(self._fd)
            with contextlib.suppress(OSError):
                path.unlink()  # ours: it was not there before
            raise
        self._mapped[:8] = MAGIC

    def _chunk(self, length: int) -> mmap.mmap:
        """On a full disk this raises, where a write to a hole of the file would kill the engine."""
        _allocate(self._fd, self._base, length)
        return mmap.mmap(self._fd, length, offset=self._base)

    def _set(self, mapped: mmap.mmap, pos: int) -> None:
        self._mapped, self._ready = mapped, 0
        self._populate(BLOCK)
        self._words = memoryview(mapped).cast("Q")
        self.pos = self.block = pos
        self.window = memoryview(mapped)[:BLOCK]
        """Where records go, up to the next CHECK; writing past its end raises."""

    def _populate(self, end: int) -> None:
        """Fault in the pages up to there, a block at a time: a chunk at once would stop the engine for 1 ms."""
        if end > self._ready:
            start, self._ready = self._ready, min(-(-end // mmap.PAGESIZE) * mmap.PAGESIZE, len(self._mapped))
            with contextlib.suppress(OSError, ValueError):
                self._mapped.madvise(_POPULATE_WRITE, start, self._ready - start)

    def append(self, kind: int, payload: bytes) -> None:
        """Commit one record. Raises OSError when there is no room for it."""
        # `Recorder.end` does this in its own way. A collection can start here, but a GC callback never appends.
        n = len(payload)
        size = ((n + 11) & ~7) + 8
        if self.pos + size > len(self.window):
            self.grow(size)
        self._write(kind, payload, n, size)

    def _write(self, kind: int, payload: bytes, n: int, size: int) -> None:
        pos, head = self.pos, kind << 24 | n
        self._mapped[pos : pos + 4 + n] = head.to_bytes(4, "little") + payload
        self._words[(pos + size >> 3) - 1] = word_of(head)
        self.pos = pos + size

    def check(self) -> None:
        """Write the CRC of what came since the last one."""
        if self.pos > self.block:
            with memoryview(self._mapped) as view, view[self.block : self.pos] as block:
                crc = crc32(block)
            self._write(CHECK, R_CHECK.pack(crc), 4, _CHECK_SIZE)
            self.block = self.pos

    def grow(self, size: int) -> None:
        """Make room for a record of that size: after a CHECK, in this chunk or in a new one."""
        start = perf_counter_ns()
        if size > _LONGEST:
            raise OSError("record too long")
        if self.pos + size + _CLOSING + _CHECK_SIZE > len(self._mapped):
            self._next_chunk(size)
        else:
            self.check()
        end = min(self.pos + max(size, BLOCK), len(self._mapped) - _CLOSING)
        self._populate(end)
        self.window.release()
        self.window = memoryview(self._mapped)[:end]
        self.grow_ns += perf_counter_ns() - start
        self._checked()

    def _next_chunk(self, size: int) -> None:
        """Close this chunk with a CHECK and a PAD, and map another."""
        full, words, window, end = self._mapped, self._words, self.window, len(self._mapped)
        self._base += end
        try:
            mapped = self._chunk(-(-(size + _CLOSING) // CHUNK) * CHUNK)
        except BaseException:
            self._base -= end
            raise
        self.check()
        rest = end - self.pos
        head = PAD << 24 | rest - 12
        full[self.pos : self.pos + 4] = head.to_bytes(4, "little")
        words[-1] = word_of(head)
        self._set(mapped, 0)
        window.release()
        words.release()
        full.close()

    @property
    def written(self) -> int:
        """Bytes so far."""
        return self._base + self.pos

    def _unmap(self) -> None:
        self.pos = 0
        self.window.release()
        self.window = memoryview(b"")
        self._words.release()
        self._mapped.close()

    def close(self) -> None:
        """Unmap, and give back what the last chunk did not use."""
        if self._fd < 0:
            return
        self.check()
        end = self.written
        self._unmap()
        try:
            os.ftruncate(self._fd, end)
        finally:
            os.close(self._fd)
            self._fd = -1

    def abandon(self) -> None:
        """Unmap and close without a write: after a fork the file is the parent's."""
        if self._fd >= 0:
            self._unmap()
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
