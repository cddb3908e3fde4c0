"""Records as `stallbook.record.WholeRecorder` would commit them, kept in a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from stallbook.record import WholeRecorder, spool

__all__ = ["Records"]

_KINDS: Final = {None: spool.STEP_WIDE, "step": spool.STEP_OS_WIDE, "segment": spool.STEP_DELAYS_WIDE}


class Records:
    """What a teller writes to. `names`: of the process that noted, with their numbers. `os_counters`: as its own."""

    tail = staticmethod(WholeRecorder.tail)
    window = staticmethod(WholeRecorder.host_window)
    device_window = staticmethod(WholeRecorder.device_window)

    def __init__(self, names: Mapping[str, int], os_counters: str | None) -> None:
        self.names, self.os_counters = names, os_counters
        self._kind = _KINDS[os_counters]
        self._kept: list[tuple[int, bytes]] = []

    def take(self) -> list[tuple[int, bytes]]:
        """What was written since the last time."""
        kept, self._kept = self._kept, []
        return kept

    def step(
        self, step: int, t0: int, t1: int, emitted: int, names: Sequence[int], times: Sequence[int],
        ends: Sequence[int], decode: int, prefill: int, everyone: bool, graph: int, padded: int, blocked: int,
        tail: bytes,
    ) -> None:  # fmt: skip
        """A step, as `WholeRecorder.step`."""
        flags = spool.EMITS | (spool.EMITS_BATCH if everyone else 0) | (spool.HAS_TAIL if tail else 0)
        flags |= blocked + 1 << spool.BLOCKED_SHIFT
        head = len(names), graph, flags, t0, step, t1 - t0, emitted - t0, prefill, -1, padded, decode
        payload = spool.body(self._kind, len(names)).pack(*head, *times, *ends, *names)
        self._kept.append((self._kind, payload + tail))

    def _request(self, kind: int, handle: int, t: int) -> None:
        self._kept.append((kind, spool.R_REQUEST.pack(handle, t)))

    def admit(self, handle: int, t: int) -> None:
        """It was scheduled for the first time."""
        self._request(spool.ADMIT, handle, t)

    def readmit(self, handle: int, t: int) -> None:
        """It is back after an eviction."""
        self._request(spool.READMIT, handle, t)

    def finish(self, handle: int, t: int) -> None:
        """It is done."""
        self._request(spool.FINISH, handle, t)

    def evict(self, handle: int, recompute: bool, lost_tokens: int, t: int) -> None:
        """It lost its KV cache."""
        self._kept.append((spool.EVICT, spool.R_EVICT.pack(handle, t, lost_tokens, recompute)))

    def delivered(self, handles: Sequence[int], tokens: Sequence[int], t: int) -> None:
        """Tokens of many requests reached the frontend at once."""
        self._kept.append((spool.DELIVERED, WholeRecorder.delivery(handles, tokens, t)))

    def delivered_again(self, t: int) -> None:
        """The same as by the last `delivered`."""
        self._kept.append((spool.DELIVERED_AGAIN, spool.R_AGAIN.pack(t)))
