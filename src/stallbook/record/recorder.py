"""The recorder: what an engine calls in its loop. One record a step, two list appends a segment.

One thread, the engine's, calls it. Collections may run at any point and on any thread. No method raises.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error
from typing import Final

from stallbook.record import spool
from stallbook.record.counters import PoolDelay, RunDelay
from stallbook.record.requests import Requests

__all__ = ["Recorder"]

_NO_NAME: Final = spool.NO_NAME
_EMITS: Final = spool.EMITS
_STATE_MASK: Final = 1023
_SAMPLE_MASK: Final = 63
"""One step in 64 measures its own `end`, and one in 1024 is followed by the recorder's own counts."""
_LAYOUTS: Final[dict[int, list[Struct]]] = {
    kind: [spool.head(kind, marks) for marks in range(33)] for kind in spool.HEADS
}
_now = time.perf_counter_ns
_thread_time = time.thread_time_ns


class Recorder(Requests):
    """Writes the log of one process of an engine to the folder `path`. See docs/recorder.md."""

    __slots__ = ()

    def begin(self, step: int = -1, t: int | None = None) -> int:
        """Open a step and return its t0. `step` numbers it; by default steps count up."""
        if t is None:
            t = self._clock()
        if self._off:
            return t
        try:
            if self._open:  # the engine forgot to end it
                self.dropped += 1
                self.drop()
            if step >= 0:
                self._step = step
            if self._counters is not None:
                self._sample_begin()
            self._t0 = t
            self._open = True
        except Exception:
            self._failed()
        return t

    def _sample_begin(self) -> None:
        if self._delays is None:  # made here, on the thread that it is to measure
            self._delays = PoolDelay() if self._pool else RunDelay()
        if self._width == 2:
            self._delays.delta()
        self._cpu = _thread_time()

    def enter(self, name: int, request: int = -1, t: int | None = None) -> None:
        """A segment starts, and the one that is open ends: one clock read and one sample for both."""
        if not self._open:
            return
        try:
            marks = self._marks
            if request >= 0:
                self._owners += (len(marks) // self._width, request)
                self._extra = True
            marks.append(name)
            marks.append((self._clock() if t is None else t) - self._t0)
            if self._width == 3:
                marks.append(self._delays.delta())  # type: ignore[union-attr]
            self._in_segment = True
        except Exception:
            self._failed()

    def leave(self, t: int | None = None) -> None:
        """The open segment ends."""
        if self._in_segment:
            self.enter(_NO_NAME, -1, t)
            self._in_segment = False

    def window(
        self, name: int, t0: int, t1: int, device: bool = False, request: int = -1, run_delay: int = -1
    ) -> None:  # fmt: skip
        """A segment of the open step whose ends were stamped elsewhere: on a device, or inside another segment."""
        if not self._open:
            return
        try:
            self._windows.append(spool.R_WINDOW.pack(name, int(device), request, t0, t1, run_delay))
            self._extra = True
        except Exception:
            self._failed()

    def prefill(self, tokens: int) -> None:
        """So many prompt tokens more were prefilled in this step."""
        self._prefill += tokens

    def member(self, handle: int) -> None:
        """It is in this step's batch too, this step only: a prefill chunk."""
        if self._open:
            self._members.append(handle)
            self._extra = True

    def emit(self, t: int | None = None) -> int:
        """One token for every request of the batch that decodes, stamped now. Returns the stamp."""
        if t is None:
            t = self._clock()
        if self._open:
            self._stamp(t, _EMITS | spool.EMITS_BATCH)
        return t

    def emit_some(self, pairs: Iterable[tuple[int, int]], t: int | None = None) -> int:
        """The emissions of this step, as (handle, tokens), where they are not one for each of the batch."""
        if t is None:
            t = self._clock()
        if self._open:
            try:
                for pair in pairs:
                    self._pairs += pair
                self._extra = True
                self._stamp(t, _EMITS)
            except Exception:
                self._failed()
        return t

    def _stamp(self, t: int, flags: int) -> None:
        if not self._flags:  # all emissions of a step share the first one's stamp
            self._emit = self._pauses.last_emission = t
            self._cut = len(self._ops)
            self._rows = len(self._batch) or len(self._pairs) // 2
        self._flags |= flags

    def drop(self) -> None:
        """Forget the open step: an idle pass of the loop. Joins and parts stay."""
        self._open = self._in_segment = False
        self._marks.clear()
        self._flags = self._prefill = self._rows = 0
        if self._extra:
            self._extra = False
            self._pairs.clear()
            self._members.clear()
            self._owners.clear()
            self._windows.clear()

    def end(
        self, graph: int = 0, padded: int = -1, decode_tokens: int = -1, kv_tokens: int = -1, t: int | None = None,
        members: bool = True,
    ) -> None:  # fmt: skip
        """Close the step and commit it. `graph`: 0 no captured path, 1 captured, 2 eager above it. `decode_tokens`: by
        default the size of the batch. `members=False`: the log does not know who was in this batch.
        """
        if not self._open:
            return
        began = _now() if not self._steps & _SAMPLE_MASK else 0
        try:
            if t is None:
                t = self._clock()
            if self._in_segment:
                self.enter(_NO_NAME, -1, t)
            cpu = delay = -1
            if self._counters is not None:
                cpu = _thread_time() - self._cpu
                if self._width == 2:
                    delay = self._delays.delta()  # type: ignore[union-attr]
            flags = self._flags
            cut = self._cut if flags else len(self._ops)
            t0 = self._t0
            emitted = self._emit - t0 if flags else -1
            if not members:
                flags |= spool.MEMBERS_UNKNOWN
            tail = b""
            if cut or self._extra:
                tail = self._tail(cut)
                flags |= spool.HAS_TAIL
            if decode_tokens < 0:
                decode_tokens = self._rows
            marks, kind = self._marks, self._kind
            count = len(marks) // self._width
            self._counted += count
            try:
                payload = _LAYOUTS[kind][count].pack(
                    self._step, t0, t - t0, emitted, cpu, delay, graph, flags, count, padded, decode_tokens,
                    self._prefill, kv_tokens, *marks,
                )  # fmt: skip
            except (struct_error, IndexError):  # a step of over two seconds, of a large id, or of many segments
                kind += spool.STEP_WIDE - spool.STEP
                payload = spool.head(kind, count).pack(
                    self._step, t0, t - t0, emitted, cpu, delay, graph, flags, count, padded, decode_tokens,
                    self._prefill, kv_tokens, *marks,
                )  # fmt: skip
            self._put(kind, payload + tail if tail else payload)
            if cut:
                del self._ops[:cut]
        except Exception:
            self.dropped += 1
            self._failed()
        self._step += 1
        self._steps += 1
        self.drop()
        if began:
            self._measure(began)

    def _tail(self, cut: int) -> bytes:
        lists = (self._ops[:cut], self._pairs, self._members, self._owners)
        words = [word for one in lists for word in one]
        lengths = spool.R_TAIL.pack(*map(len, lists), len(self._windows))
        return b"".join((lengths, Struct(f"<{len(words)}I").pack(*words), *self._windows))

    def _measure(self, began: int) -> None:
        """Keep the books on the recorder itself."""
        self._measured += _now() - began
        if not self._steps & _STATE_MASK:
            self.flush()
