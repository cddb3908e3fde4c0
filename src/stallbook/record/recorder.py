"""The recorder: what an engine calls in its loop. One record a step, two appends a segment.

One thread, the engine's, calls it. Collections may run at any point and on any thread. No method raises.
The order of the code in `enter`, `emit` and `end` is that of the benchmark: every attribute that they read is counted.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from stallbook.record import spool
from stallbook.record.counters import PoolDelay, RunDelay, available
from stallbook.record.requests import Requests

__all__ = ["Recorder"]

_NO_NAME: Final = spool.NO_NAME
_BATCH_EMITS: Final = spool.EMITS | spool.EMITS_BATCH
_STATE_MASK: Final = 1023
_SAMPLE_MASK: Final = 63
"""One step in 64 measures its own `end` and is followed by a CHECK, one in 1024 by the recorder's own counts."""
_thread_time = time.thread_time_ns


class Recorder(Requests):
    """Writes the log of one process of an engine to the folder `path`. See docs/recorder.md."""

    __slots__ = ()

    def __new__(cls, *_: Any, os_counters: str | None = "segment", **__: Any) -> Recorder:
        """Sampling OS counters is a class of its own, for the sake of those that do not."""
        if cls is Recorder and os_counters and available():
            return super().__new__(_SegmentSampler if os_counters == "segment" else _StepSampler)
        return super().__new__(cls)

    def begin(self, step: int = -1, t: int | None = None) -> int:
        """Open a step and return its t0. `step` numbers it; by default steps count up."""
        if t is None:
            clock = self._clock
            t = clock()
        if self._flags >= 0 or self._marks:  # a step that was not ended, or segments outside of one
            self.dropped += self._flags >= 0
            self.drop()
        if self._off:
            return t
        if step >= 0:
            self._step = step
        self._t0 = t
        self._flags = 0
        return t

    def enter(self, name: int, request: int = -1, t: int | None = None) -> None:
        """A segment starts, and the one that is open ends: one clock read and one sample for both."""
        try:
            self._sequence.append(name)
            if t is None:
                clock = self._clock
                t = clock()
            self._marks.append(t)
            if request >= 0:
                self._owners += (len(self._sequence) - 1, request)
                self._unusual = True
        except Exception:
            self._failed()

    def leave(self, t: int | None = None) -> None:
        """The open segment ends. Needed only where none follows at once: `end` ends the last."""
        try:
            self._sequence.append(_NO_NAME)
            if t is None:
                clock = self._clock
                t = clock()
            self._marks.append(t)
        except Exception:
            self._failed()

    def window(
        self, name: int, t0: int, t1: int, device: bool = False, request: int = -1, run_delay: int = -1
    ) -> None:  # fmt: skip
        """A segment of the open step whose ends were stamped elsewhere: on a device, or inside another segment."""
        try:
            if self._flags >= 0:
                self._windows.append(spool.R_WINDOW.pack(name, int(device), request, t0, t1, run_delay))
                self._unusual = True
        except Exception:
            self._failed()

    def prefill(self, tokens: int) -> None:
        """So many prompt tokens more were prefilled in this step."""
        try:
            self._prefill += tokens
        except Exception:
            self._failed()

    def member(self, handle: int) -> None:
        """It is in this step's batch too, this step only: a prefill chunk."""
        if self._flags >= 0:
            self._members.append(handle)
            self._unusual = True

    def emit(self, t: int | None = None) -> int:
        """One token for every request of the batch that decodes, stamped now. Returns the stamp."""
        if t is None:
            clock = self._clock
            t = clock()
        flags = self._flags
        if flags == 0:  # all emissions of a step share the first one's stamp
            self._emit = t
            if self._unusual:
                self._cut = len(self._ops)
        if flags >= 0:
            self._flags = flags | _BATCH_EMITS
        return t

    def emit_some(self, pairs: Iterable[tuple[int, int]], t: int | None = None) -> int:
        """The emissions of this step, as (handle, tokens), where they are not one for each of the batch."""
        if t is None:
            clock = self._clock
            t = clock()
        try:
            if self._flags < 0:
                return t
            for pair in pairs:
                self._pairs += pair
            self._unusual = True
            if self._flags == 0:
                self._emit, self._cut = t, len(self._ops)
            self._flags |= spool.EMITS
        except Exception:
            self._failed()
        return t

    def drop(self) -> None:
        """Forget the open step: an idle pass of the loop. Joins and parts stay."""
        self._flags = -1
        self._prefill = self._cut = 0
        self._sequence.clear()
        self._marks.clear()
        if self._unusual:
            self._clear_lists()

    def _clear_lists(self) -> None:
        self._pairs.clear()
        self._members.clear()
        self._owners.clear()
        self._windows.clear()
        self._unusual = bool(self._ops or self._pending)

    def end(
        self, graph: int = 0, padded: int = -1, decode_tokens: int = -1, kv_tokens: int = -1, t: int | None = None,
        members: bool = True,
    ) -> None:  # fmt: skip
        """Close the step and commit it. `graph`: 0 no captured path, 1 captured, 2 eager above it. `decode_tokens`: by
        default the size of the batch. `members=False`: the log does not know who was in this batch.
        """
        flags, step, sequence, marks = self._flags, self._step, self._sequence, self._marks
        if flags < 0:
            return
        began = 0 if step & _SAMPLE_MASK else _thread_time()
        try:
            if t is None:
                clock = self._clock
                t = clock()
            if self._unusual or not members:
                self._end_unusual(t, graph, padded, decode_tokens, kv_tokens, members)
            else:
                t0, count = self._t0, len(sequence)
                if decode_tokens == -1:
                    decode_tokens = len(self._batch) if flags else 0
                pack, head, word, size = self._layouts[count]
                store: Any = self._store
                pos = store.pos
                pack(
                    store.window, pos, head, step, t0, t - t0, self._emit - t0 if flags else -1, graph, flags, count,
                    padded, decode_tokens, self._prefill, kv_tokens, sequence, *marks, word,
                )  # fmt: skip
                store.pos = pos + size
        except (struct.error, IndexError):  # something does not fit: a number, the segments, the chunk
            self._end_unusual(t or 0, graph, padded, decode_tokens, kv_tokens, members)
        except Exception:
            self._lost()
        self._flags = -1
        self._prefill = 0
        if began:
            self._measure(began, len(sequence))
        sequence.clear()
        marks.clear()
        self._step = step + 1

    def _end_unusual(
        self, t: int, graph: int, padded: int, decode_tokens: int, kv_tokens: int, members: bool
    ) -> None:  # fmt: skip
        """Commit a step that changed the batch, has emissions or windows of its own, or does not fit."""
        try:
            flags, ops, count, t0 = self._flags, self._ops, len(self._sequence), self._t0
            cut = self._cut if flags else len(ops)
            if decode_tokens == -1:
                decode_tokens = self._decode_rows(cut) if flags else 0
            tail = self._tail(cut) if self._unusual else b""
            values = (
                self._step, t0, t - t0, self._emit - t0 if flags else -1, graph,
                flags | (spool.HAS_TAIL if tail else 0) | (0 if members else spool.MEMBERS_UNKNOWN), count,
                padded, max(decode_tokens, -1), self._prefill, kv_tokens, self._sequence, *self._marks,
            )  # fmt: skip
            kind = self._kind
            try:
                payload = spool.body(kind, count).pack(*values)
            except struct.error:
                kind = spool.WIDE[kind]
                payload = spool.body(kind, count).pack(*values)
            self._put(kind, payload + tail)
            del ops[:cut]
            self._cut = 0
        except Exception:
            self._lost()
        self._clear_lists()

    def _decode_rows(self, cut: int) -> int:
        """The size of the batch when it emitted."""
        rows = len(self._batch)
        for op in self._ops[cut:]:
            rows += 1 if op & 1 else -1
        return rows or len(self._pairs) // 2

    def _tail(self, cut: int) -> bytes:
        words = self._ops[:cut]
        lengths = spool.R_TAIL.pack(
            cut, len(self._pairs), len(self._members), len(self._owners), len(self._windows)
        )  # fmt: skip
        for one in (self._pairs, self._members, self._owners):
            words += one
        tail = lengths + struct.pack(f"<{len(words)}I", *words)
        return tail + b"".join(self._windows) if self._windows else tail

    def _lost(self) -> None:
        self.dropped += 1
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._disable(f"cannot write {self._folder}: {error.strerror or error}")
        else:
            self._failed()

    def _measure(self, began: int, marks: int) -> None:
        """Keep the books on the recorder itself."""
        try:
            self._samples += 1
            self._sampled_marks += marks
            self._measured += _thread_time() - began
            if self._store is not None:
                self._store.check()
            if not self._step & _STATE_MASK:
                self.flush()
        except Exception:
            self._failed()


class _StepSampler(Recorder):
    """Reads the OS counters at both ends of a step. (`super()` would cost more than the calls do.)"""

    __slots__ = ()

    def begin(self, step: int = -1, t: int | None = None) -> int:
        t = Recorder.begin(self, step, t)
        try:
            delays = self._delays
            if delays is None:  # made here, on the thread that it is to measure
                delays = self._delays = PoolDelay() if self._pool else RunDelay()
            delays.delta()
            self._cpu = delays.cpu
        except Exception:
            self._failed()
        return t

    def end(
        self, graph: int = 0, padded: int = -1, decode_tokens: int = -1, kv_tokens: int = -1, t: int | None = None,
        members: bool = True,
    ) -> None:  # fmt: skip
        try:
            delays: Any = self._delays
            delay = delays.delta()
            self._marks.append(delays.cpu - self._cpu)
            self._marks.append(delay)
        except Exception:
            self._failed()
        Recorder.end(self, graph, padded, decode_tokens, kv_tokens, t, members)


class _SegmentSampler(_StepSampler):
    """Reads them at each mark too."""

    __slots__ = ()

    def enter(self, name: int, request: int = -1, t: int | None = None) -> None:
        Recorder.enter(self, name, request, t)
        try:
            self._marks.append(self._delays.delta() if self._delays else 0)
        except Exception:
            self._failed()

    def leave(self, t: int | None = None) -> None:
        self.enter(_NO_NAME, -1, t)
