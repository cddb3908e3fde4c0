"""A recorder for engines that stamp a step's borders themselves: one call writes the whole step.

An engine whose steps overlap (the next one is scheduled while this one runs) cannot open and close them one after
another. And behind a forward pass, where no cache is warm, each call costs microseconds: here a step is one.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final

from stallbook.record import spool
from stallbook.record.recorder import Recorder

__all__ = ["WholeRecorder"]

_EVERYONE: Final = spool.EMITS | spool.EMITS_BATCH
_STATES: Final = 8
_CALL_NS: Final = 2_000
"""An event other than a step: what its call and its record cost, about."""


class WholeRecorder(Recorder):
    """As `Recorder`; steps come whole, with `step`, from a caller that keeps the batch. See docs/recorder.md.

    `os_counters` says what the caller will give: "step" one delay for the whole step, "segment" one for each mark.
    """

    __slots__ = ("_events", "_spent", "_told")

    def __init__(self, *args: Any, **more: Any) -> None:
        self._spent = self._events = self._told = 0
        super().__init__(*args, **more)

    def _begin_window(self) -> None:
        return  # the caller times its own hooks, and says so with `spent`

    @property
    def self_ns(self) -> int:
        """What recording has cost: what the caller measured, collections, events, and the growth of the file."""
        store = self._store
        if store is None:
            return self._closed_ns
        return self._spent + self._events * _CALL_NS + self._cost.total(0, self._pauses.seen) + store.grow_ns

    @property
    def events(self) -> int:
        """Records other than steps that the account knows by their number alone."""
        return self._events

    def spent(self, ns: int, events: int = 0) -> None:
        """So much time was spent in the caller's hooks, `step` included, and that of so many events. Now and then this
        writes the books too.
        """
        self._spent += ns
        self._events -= events
        self._told += 1
        if self._told >= _STATES:
            self.flush()

    def flush(self) -> None:
        """As the recorder's; the next books are due so many calls of `spent` from now."""
        self._told = 0
        super().flush()

    @property
    def on(self) -> bool:
        """Whether it still records."""
        return not self._off

    def step(
        self, step: int, t0: int, t1: int, emitted: int, names: Sequence[int], times: Sequence[int],
        ends: Sequence[int], decode: int, prefill: int = 0, everyone: bool = True, graph: int = 0, padded: int = -1,
        blocked: int = -1, tail: bytes = b"",
    ) -> None:  # fmt: skip
        """Commit a step: it began at `t0`, ended at `t1`, and emitted at `emitted` one token for each of the batch if
        `everyone`. A mark of `names` starts at each of `times`. `ends`: for each mark the run-queue delay since the one
        before, where the recorder is to write them; CPU time; run-queue delay of the step, or since the last mark.
        `tail`: what `tail` made.
        """
        if self._off:
            return
        flags = (_EVERYONE if everyone else spool.EMITS) | blocked + 1 << spool.BLOCKED_SHIFT
        count = len(names)
        self._emit = emitted
        try:
            store: Any = self._store
            if self._pending:
                self._put_pauses(store)
            if not tail:
                pack, head, word, size = self._layouts[count]
                pos = store.pos
                pack(
                    store.window, pos, head, count, graph, flags, t0, step, t1 - t0, emitted - t0, prefill, -1, padded,
                    decode, *times, *ends, *names, word,
                )  # fmt: skip
                store.pos = pos + size
                return
            flags |= spool.HAS_TAIL
        except (struct.error, IndexError):  # a number or the chunk: it does not fit
            pass
        except Exception:
            self._lost()
            return
        values = (
            count, graph, flags, t0, step, t1 - t0, emitted - t0, prefill, -1, padded, decode, *times, *ends, *names
        )  # fmt: skip
        self._put_whole(count, values, tail)

    def _put(self, kind: int, payload: bytes) -> None:
        self._events += 1
        super()._put(kind, payload)

    def _put_whole(self, count: int, values: tuple[int, ...], tail: bytes) -> None:
        try:
            self._put_step(count, values, tail)
        except Exception:
            self._lost()

    @staticmethod
    def tail(
        changes: Sequence[int] = (), pairs: Sequence[int] = (), members: Sequence[int] = (),
        windows: Sequence[bytes] = (),
    ) -> bytes:  # fmt: skip
        """What a step has beyond its marks. changes: handle * 2, plus 1 for one that left the batch. pairs: handle,
        tokens, ... of emissions that are not one for each of the batch. members: handles of this step only.
        """
        lengths = spool.R_TAIL.pack(len(changes), len(pairs), len(members), 0, len(windows))
        words = (*changes, *pairs, *members)
        return lengths + struct.pack(f"<{len(words)}I", *words) + b"".join(windows)

    @staticmethod
    def device_window(name: int, t0: int, t1: int) -> bytes:
        """A window on the device lane, for `tail`."""
        return spool.R_WINDOW.pack(name, 1, -1, t0, t1, -1)

    @staticmethod
    def host_window(name: int, t0: int, t1: int) -> bytes:
        """A window inside the step's marks, for `tail`."""
        return spool.R_WINDOW.pack(name, 0, -1, t0, t1, -1)

    @staticmethod
    def delivery(handles: Sequence[int], tokens: Sequence[int], t: int, boundary: int = 0) -> bytes:
        """The payload of a DELIVERED."""
        words = [0] * (2 * len(handles))
        words[::2], words[1::2] = handles, tokens
        return spool.R_DELIVERED.pack(t, boundary) + struct.pack(f"<{len(words)}I", *words)

    def delivered(self, handles: Sequence[int], tokens: Sequence[int], t: int, boundary: int = 0) -> None:
        """Tokens of many requests reached the frontend (boundary 0) or the client (1) at once."""
        try:
            self._put(spool.DELIVERED, self.delivery(handles, tokens, t, boundary))
        except Exception:
            self._failed()

    def noted(self, teller: str, **settings: Any) -> None:
        """What `note` writes from here on is to be told by that teller of `stallbook.notes`, so set."""
        try:
            self._put(spool.NOTED, json.dumps({**settings, "teller": teller, "names": self._names}).encode())
        except Exception:
            self._failed()

    def note(self, t: int, waited: int, number: int, notes: array[int]) -> None:
        """Commit what hooks saw up to `t` as it is: the reader tells what it means. waited: the thread's run-queue
        delay since the last time, -1 where that is not known. number: 1, 2, ...; one that is left out was lost.
        notes: 64-bit words.
        """
        try:
            if sys.byteorder == "big":
                notes.byteswap()
            self._put(spool.NOTES, spool.R_NOTES.pack(t, waited, number) + notes.tobytes())
        except Exception:
            self._failed()

    def done(self, handle: int) -> None:
        """It is done, and a note tells when."""
        self._live.pop(handle, None)

    def delivered_again(self, t: int) -> None:
        """The same requests got the same numbers of tokens as by the last `delivered`."""
        self._put(spool.DELIVERED_AGAIN, spool.R_AGAIN.pack(t))
