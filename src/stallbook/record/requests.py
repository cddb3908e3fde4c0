"""The events of a request's life, and the others that belong to no step."""

from __future__ import annotations

from stallbook.record import spool
from stallbook.record.base import Base

__all__ = ["Requests"]


class Requests(Base):
    """Records about requests. Each stamps now, or takes `t`, in ns of the recorder's clock."""

    __slots__ = ()

    def arrive(self, request: str, prompt_tokens: int = -1, max_tokens: int = -1, t: int | None = None) -> int:
        """A request came in. Returns the handle that the other methods take."""
        handle = self._requests
        try:
            self._requests += 1
            if t is None:
                t = self._clock()
            text = str(request).encode(errors="replace")
            self._put(spool.ARRIVE, spool.R_ARRIVE.pack(handle, t, prompt_tokens, max_tokens) + text)
        except Exception:
            self._failed()
        return handle

    def prompt(self, handle: int, tokens: int) -> None:
        """The length of its prompt, where that is known only after its arrival: once it was tokenized."""
        try:
            self._put(spool.PROMPT, spool.R_PROMPT.pack(handle, tokens))
        except Exception:
            self._failed()

    def _event(self, kind: int, handle: int, t: int | None) -> None:
        try:
            self._put(kind, spool.R_REQUEST.pack(handle, self._clock() if t is None else t))
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

    def evict(self, handle: int, recompute: bool | int = False, lost_tokens: int = 0, t: int | None = None) -> None:
        """It lost its KV cache: swapped out, or dropped (`recompute`). If it is still in the batch it leaves it."""
        try:
            self.part(handle)
            stamp = self._clock() if t is None else t
            self._put(spool.EVICT, spool.R_EVICT.pack(handle, stamp, lost_tokens, int(recompute)))
        except Exception:
            self._failed()

    def hold(self, handle: int, kind: str, t: int | None = None) -> None:
        """It cannot be scheduled, though alive, until `release`: `kind` is kv, compile, lora, grammar, ..."""
        self._hold(spool.HOLD, handle, kind, t)

    def release(self, handle: int, kind: str, t: int | None = None) -> None:
        """The hold of that kind is over."""
        self._hold(spool.RELEASE, handle, kind, t)

    def _hold(self, record: int, handle: int, kind: str, t: int | None) -> None:
        try:
            index = self.name(kind)
            self._put(record, spool.R_HOLD.pack(handle, self._clock() if t is None else t, index))
        except Exception:
            self._failed()

    def deliver(self, handle: int, tokens: int = 1, boundary: int = 0, t: int | None = None) -> None:
        """Tokens of it reached the frontend (boundary 0) or the client (1)."""
        try:
            stamp = self._clock() if t is None else t
            self._put(spool.DELIVER, spool.R_DELIVER.pack(handle, stamp, tokens, boundary))
        except Exception:
            self._failed()

    def restart(self, t: int | None = None) -> None:
        """A running request lost its KV in the middle of its prefill: a preemption without an eviction window."""
        try:
            self._put(spool.RESTART, spool.R_RESTART.pack(self._clock() if t is None else t))
        except Exception:
            self._failed()

    def probe(self, ns: int, t: int | None = None) -> None:
        """A fixed small piece of work took `ns`: a sample of the machine's speed."""
        try:
            self._put(spool.PROBE, spool.R_PROBE.pack(self._clock() if t is None else t, ns))
        except Exception:
            self._failed()

    def pause(self, t0: int, t1: int, generation: int, process: str = "") -> None:
        """A collection that was seen in another way than by this process's own callbacks."""
        try:
            index = self.name(process) if process else -1
            self._put(spool.PAUSE, spool.R_PAUSE.pack(t0, t1, generation, index))
        except Exception:
            self._failed()

    def join(self, handle: int) -> None:
        """It is in the batch that decodes, from this step's emission on, until it parts."""
        try:
            if handle not in self._batch and not self._off:
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
