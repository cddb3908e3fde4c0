"""When a device worked, from events that the engine's stream passes, on the host's clock.

A host timer around an asynchronous launch measures the launch. An event is stamped by the device itself, on a clock of
its own, and tells only the time between two: so one event is pinned to the host's clock, and all others are measured
from it. The pin is corrected by what must hold, that no work starts before it was launched or ends after it was seen
done, and moved along before the floats in which devices tell milliseconds lose their microseconds.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from stallbook.adapters.hooks import Hooks

__all__ = ["DeviceLane", "Track", "cuda_lane"]

_REPIN_NS: Final = 2 * 10**9
_TRIES: Final = 5
_POOL: Final = 64


class Track:
    """The events of one step: `names[i]` ran between the events i and i + 1; nothing that has a name where it is -1."""

    __slots__ = ("events", "launched", "names")

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.names: list[int] = []
        self.launched = 0


class DeviceLane:
    """Events of one device's stream. `new_event()` makes one that keeps time; `clock` is the recorder's."""

    def __init__(self, new_event: Callable[[], Any], clock: Callable[[], int]) -> None:
        self._new, self._clock = new_event, clock
        self.stream: Any = None
        """Where the engine computes, if not on the current stream."""
        self._pool: deque[Any] = deque(maxlen=_POOL)
        self._pin, self._pinned = self._calibrate()

    def _calibrate(self) -> tuple[Any, int]:
        """An event and when it was, from the quickest of a few tries."""
        best: tuple[int, Any, int] | None = None
        for _ in range(_TRIES):
            event, before = self._new(), self._clock()
            event.record()
            event.synchronize()
            after = self._clock()
            if best is None or after - before < best[0]:
                best = after - before, event, (before + after) // 2
        assert best is not None
        return best[1], best[2]

    def mark(self, track: Track, name: int = -1) -> None:
        """The stream gets here: what was under way ends, and `name`, if there is one, begins."""
        event = self._pool.pop() if self._pool else self._new()
        if not track.events:
            track.launched = self._clock()
        if self.stream is None:
            event.record()
        else:
            event.record(self.stream)
        track.events.append(event)
        track.names.append(name)

    def windows(self, track: Track, now: int) -> list[tuple[int, int, int]] | None:
        """The windows (name, start, end) of a step, in ns of the host's clock; None while the device is at it."""
        events = track.events
        if len(events) < 2:
            return []
        if not events[-1].query():
            return None
        times = [self._pinned + round(self._pin.elapsed_time(event) * 1e6) for event in events]
        off = max(track.launched - times[0], 0) or min(now - times[-1], 0)
        if off:
            self._pinned += off
            times = [t + off for t in times]
        out = [
            (name, start, end)
            for name, start, end in zip(track.names, times, times[1:], strict=False)
            if end > start and name >= 0
        ]
        self._retire(events, times)
        return out

    def _retire(self, events: Sequence[Any], times: Sequence[int]) -> None:
        """Take the events back, and the last one as the new pin when the old one lies far behind."""
        kept = list(events)
        if times[-1] - self._pinned > _REPIN_NS:
            kept.append(self._pin)
            self._pin, self._pinned = kept.pop(len(events) - 1), times[-1]
        self._pool.extend(kept)


def cuda_lane(hooks: Hooks, clock: Callable[[], int]) -> DeviceLane | None:
    """The lane of this process's CUDA device; None where it has none, or has no torch."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_available() or not cuda.is_initialized():
            return None
        lane = DeviceLane(lambda: cuda.Event(enable_timing=True), clock)
    except Exception:
        hooks.failed()
        return None
    hooks.found["torch.cuda.Event"] = True
    return lane
