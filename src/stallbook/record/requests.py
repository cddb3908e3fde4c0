"""The events of a request's life, and the others that belong to no step.

These calls are rare, so each is checked when it is made. What contradicts an earlier call, or what no engine can mean,
is counted in `refused`, and something harmless is recorded in its place, or nothing: one wrong call costs what it says,
not the recording.
"""

from __future__ import annotations

from typing import Final

from stallbook.record import spool
from stallbook.record.base import Base

__all__ = ["Requests"]

_UNKNOWN: Final = -(2**63)
"""As a stamp: not recorded."""
_LATEST: Final = 2**61
_AHEAD: Final = 10**9
"""Clocks of other processes, and of devices, run ahead of ours by less. A stamp of the time of day does not."""
_MOST_TOKENS: Final = 2**48
_REMEMBERED: Final = 1 << 20
"""So many ids are kept to tell whether one comes again: some 100 MB. Beyond, the log's reader still tells."""


class Requests(Base):
    """Records about requests. Each stamps now, or takes `t`, in ns of the recorder's clock."""

    __slots__ = ()

    # What is refused.

    def _refuse(self) -> bool:
        self.refused += 1
        return False

    def _lives(self, handle: int) -> bool:
        """It has arrived and not finished."""
        return handle in self._live or self._off or self._refuse()

    def _arrived(self, handle: int) -> bool:
        """It has arrived; it may have finished."""
        return 0 <= handle < self._requests or self._off or self._refuse()

    def _stamp(self, t: int | None) -> int:
        """Now, or the stamp given: not recorded where it lies in the future."""
        now = self._clock()
        if t is None:
            return now
        if -_LATEST < t <= now + _AHEAD:
            return t
        self._refuse()
        return _UNKNOWN

    def _after_arrival(self, handle: int, t: int | None) -> int:
        """As `_stamp`: not recorded, too, where it lies before the arrival."""
        stamp = self._stamp(t)
        if t is not None and _UNKNOWN < stamp < self._live.get(handle, _UNKNOWN):
            self._refuse()
            return _UNKNOWN
        return stamp

    def _count(self, tokens: int) -> int:
        """A number of tokens, or -1 for not recorded."""
        if -1 <= tokens < _MOST_TOKENS:
            return tokens
        self._refuse()
        return -1

    def _unique(self, name: str) -> str:
        """The id, or where there was a request of that id before, `ID#2`, `ID#3`, ..."""
        seen = self._ids
        count = seen.get(name, 0)
        if not count:
            if len(seen) < _REMEMBERED:
                seen[name] = 1
            return name
        self._refuse()
        while (other := f"{name}#{count + 1}") in seen:
            count += 1
        seen[name], seen[other] = count + 1, 1
        return other

    # What is recorded.

    def arrive(self, request: str, prompt_tokens: int = -1, max_tokens: int = -1, t: int | None = None) -> int:
        """A request came in. Returns the handle that the other methods take. An id that comes again gets a number."""
        handle = self._requests
        try:
            self._requests += 1
            if self._off:
                return handle
            stamp = self._stamp(t)
            fields = spool.R_ARRIVE.pack(handle, stamp, self._count(prompt_tokens), self._count(max_tokens))
            self._put(spool.ARRIVE, fields + self._unique(str(request)[: self._longest]).encode(errors="replace"))
            self._live[handle] = stamp
        except Exception:
            self._failed()
        return handle

    def prompt(self, handle: int, tokens: int) -> None:
        """The length of its prompt, where that is known only after its arrival: once it was tokenized."""
        try:
            if self._arrived(handle):
                self._put(spool.PROMPT, spool.R_PROMPT.pack(handle, self._count(tokens)))
        except Exception:
            self._failed()

    def _event(self, kind: int, handle: int, t: int | None) -> None:
        try:
            if self._lives(handle) and (stamp := self._after_arrival(handle, t)) > _UNKNOWN:
                self._put(kind, spool.R_REQUEST.pack(handle, stamp))
        except Exception:
            self._failed()

    def admit(self, handle: int, t: int | None = None) -> None:
        """It was scheduled for the first time."""
        self._event(spool.ADMIT, handle, t)

    def readmit(self, handle: int, t: int | None = None) -> None:
        """It is back after an eviction."""
        self._event(spool.READMIT, handle, t)

    def finish(self, handle: int, t: int | None = None) -> None:
        """It is done. If it is still in the batch it leaves it."""
        self.part(handle)
        self._event(spool.FINISH, handle, t)
        try:
            self._live.pop(handle, None)
        except Exception:
            self._failed()

    def evict(self, handle: int, recompute: bool | int = False, lost_tokens: int = 0, t: int | None = None) -> None:
        """It lost its KV cache: swapped out, or dropped (`recompute`). If it is still in the batch it leaves it."""
        try:
            self.part(handle)
            if self._lives(handle) and (stamp := self._after_arrival(handle, t)) > _UNKNOWN:
                lost = self._count(lost_tokens)
                self._put(spool.EVICT, spool.R_EVICT.pack(handle, stamp, lost, int(recompute)))
        except Exception:
            self._failed()

    def hold(self, handle: int, kind: str, t: int | None = None) -> None:
        """It cannot be scheduled, though alive, until `release`: `kind` is kv, compile, lora, grammar, ..."""
        try:
            if self._lives(handle):
                self._hold(spool.HOLD, handle, kind, t)
        except Exception:
            self._failed()

    def release(self, handle: int, kind: str, t: int | None = None) -> None:
        """The hold of that kind is over."""
        try:
            if self._arrived(handle):
                self._hold(spool.RELEASE, handle, kind, t)
        except Exception:
            self._failed()

    def _hold(self, record: int, handle: int, kind: str, t: int | None) -> None:
        stamp, index = self._after_arrival(handle, t), self.name(kind)
        if stamp > _UNKNOWN:
            self._put(record, spool.R_HOLD.pack(handle, stamp, index))

    def deliver(self, handle: int, tokens: int = 1, boundary: int = 0, t: int | None = None) -> None:
        """Tokens of it reached the frontend (boundary 0) or the client (1)."""
        try:
            if not self._arrived(handle):
                return
            stamp = self._after_arrival(handle, t)
            if not 0 <= tokens < _MOST_TOKENS or not 0 <= boundary <= 1:
                self._refuse()
            elif stamp > _UNKNOWN:
                self._put(spool.DELIVER, spool.R_DELIVER.pack(handle, stamp, tokens, boundary))
        except Exception:
            self._failed()

    def restart(self, t: int | None = None) -> None:
        """A running request lost its KV in the middle of its prefill: a preemption without an eviction window."""
        try:
            self._put(spool.RESTART, spool.R_RESTART.pack(self._stamp(t)))
        except Exception:
            self._failed()

    def probe(self, ns: int, t: int | None = None) -> None:
        """A fixed small piece of work took `ns`: a sample of the machine's speed."""
        try:
            stamp = self._stamp(t)
            if not 0 <= ns < _LATEST:
                self._refuse()
            elif stamp > _UNKNOWN:
                self._put(spool.PROBE, spool.R_PROBE.pack(stamp, ns))
        except Exception:
            self._failed()

    def pause(self, t0: int, t1: int, generation: int, process: str = "") -> None:
        """A collection that was seen in another way than by this process's own callbacks."""
        try:
            if not -_LATEST < t0 <= t1 < _LATEST:
                self._refuse()
                return
            index = self.name(process) if process else -1
            self._put(spool.PAUSE, spool.R_PAUSE.pack(t0, t1, generation, index))
        except Exception:
            self._failed()

    def join(self, handle: int) -> None:
        """It is in the batch that decodes, from this step's emission on, until it parts."""
        try:
            if handle not in self._batch and not self._off and (handle in self._live or self._lives(handle)):
                self._ops.append(handle << 1)
                self._unusual = True
                self._batch.add(handle)
        except Exception:
            self._failed()

    def part(self, handle: int) -> None:
        """It left the batch that decodes: for this step's emission if that is still to come, else for the next."""
        try:
            if handle in self._batch and not self._off:
                self._ops.append(handle << 1 | 1)
                self._unusual = True
                self._batch.remove(handle)
        except Exception:
            self._failed()
