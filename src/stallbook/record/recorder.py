"""The recorder: what an engine calls in its loop. One record a step, two appends a segment.

One thread, the engine's, calls it. Collections may run at any point and on any thread. No method raises.
The order of the code in `begin`, `enter`, `emit` and `end` is that of the benchmark: each attribute read is counted.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from typing import Any, Final

from stallbook.record import spool
from stallbook.record.counters import available
from stallbook.record.requests import Requests

__all__ = ["Recorder"]

_NO_NAME: Final = spool.NO_NAME
_BATCH_EMITS: Final = spool.EMITS | spool.EMITS_BATCH
_BLOCKED_SHIFT: Final = spool.BLOCKED_SHIFT


class Recorder(Requests):
    """Writes the log of one process of an engine to the folder `path`. See docs/recorder.md."""

    __slots__ = ()

    def __new__(cls, *_: Any, os_counters: str | None = "segment", **__: Any) -> Recorder:
        """Sampling OS counters is a class of its own, for the sake of those that do not."""
        if cls is Recorder and os_counters and available():
            from stallbook.record.samplers import SegmentSampler, StepSampler  # they are recorders themselves

            return super().__new__(SegmentSampler if os_counters == "segment" else StepSampler)
        return super().__new__(cls)

    def begin(self, step: int = -1, t: int | None = None) -> int:
        """Open a step and return its t0. `step` numbers it; by default steps count up."""
        if t is None:
            clock = self._clock
            t = clock()
        if self._flags >= 0 or self._sequence:  # a step that was not ended, or segments outside of one
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
            times = self._times
            if t is None:
                clock = self._clock
                times.append(clock())
            else:
                times.append(t)
            self._sequence.append(name)
            if request >= 0:
                self._owners += (len(times) - 1, request)
                self._unusual = True
        except Exception:
            self._failed()

    def leave(self, t: int | None = None) -> None:
        """The open segment ends. Needed only where none follows at once: `end` ends the last."""
        self.enter(_NO_NAME, -1, t)

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

    def look(self) -> None:
        """Inside a long segment whose native threads wait for each other: see `pool_threads`. Else it does nothing."""

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
        self._times.clear()
        self._waits.clear()
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
        members: bool = True, blocked: int = -1,
    ) -> int:  # fmt: skip
        """Close the step and commit it; returns its t1, where the next one begins if the engine goes round at once.

        `graph`: 0 no captured path, 1 captured, 2 eager above it. `decode_tokens`: by
        default the size of the batch. `members=False`: the log does not know who was in this batch. `blocked`: what
        kept the first waiting request out, 0 nothing, 1 KV blocks, 2 the limit of sequences, 3 the token budget.
        """
        if t is None:
            clock = self._clock
            t = clock()
        flags = self._flags
        if flags < 0:
            return t
        step, sequence, times = self._step, self._sequence, self._times
        try:
            if self._unusual or not members:
                self._end_unusual(t, graph, padded, decode_tokens, kv_tokens, members, blocked)
            else:
                t0, count = self._t0, len(sequence)
                if decode_tokens == -1:
                    decode_tokens = len(self._batch) if flags else 0
                pack, head, word, size = self._layouts[count]
                store: Any = self._store
                pos = store.pos
                pack(
                    store.window, pos, head, count, graph, flags | blocked + 1 << _BLOCKED_SHIFT, t0, step, t - t0,
                    self._emit - t0 if flags else -1, self._prefill, kv_tokens, padded, decode_tokens,
                    *times, *sequence, word,
                )  # fmt: skip
                store.pos = pos + size
        except (struct.error, IndexError):  # something does not fit: a number, the segments, the chunk
            self._end_unusual(t, graph, padded, decode_tokens, kv_tokens, members, blocked)
        except Exception:
            self._lost()
        self._flags = -1
        self._prefill = 0
        sequence.clear()
        times.clear()
        self._step = step + 1
        return t

    def _end_unusual(
        self, t: int, graph: int, padded: int, decode_tokens: int, kv_tokens: int, members: bool, blocked: int
    ) -> None:  # fmt: skip
        """Commit a step that changed the batch, has emissions or windows of its own, or does not fit."""
        try:
            flags, ops, count, t0 = self._flags, self._ops, len(self._sequence), self._t0
            cut = self._cut if flags else len(ops)
            if decode_tokens == -1:
                decode_tokens = self._decode_rows(cut) if flags else 0
            tail = self._tail(cut) if self._unusual else b""
            emitted = self._emit - t0 if flags else -1
            flags |= (spool.HAS_TAIL if tail else 0) | (0 if members else spool.MEMBERS_UNKNOWN)
            values = (
                count, graph, flags | blocked + 1 << _BLOCKED_SHIFT, t0, self._step, t - t0, emitted, self._prefill,
                kv_tokens, padded, max(decode_tokens, -1), *self._times, *self._sequence,
            )  # fmt: skip
            self._put_step(count, values, tail)
            del ops[:cut]
            self._cut = 0
        except Exception:
            self._lost()
        self._clear_lists()

    def _put_step(self, count: int, values: tuple[int, ...], tail: bytes) -> None:
        """Commit a step of `count` marks, in wide numbers where narrow ones do not hold it."""
        kind = self._kind
        try:
            payload = spool.body(kind, count).pack(*values)
        except struct.error:
            kind = spool.WIDE[kind]
            payload = spool.body(kind, count).pack(*self._fitting(values))
        self._put(kind, payload + tail)

    def _fitting(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """The values of a step: what a byte cannot hold, no engine meant."""
        count, graph, flags, *rest = values
        if not 0 <= graph <= 2:
            self.refused += 1
            graph = 0
        if not 0 <= flags <= 0xFF:
            self.refused += 1
            flags &= (1 << _BLOCKED_SHIFT) - 1
        return (count, graph, flags, *rest)

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
