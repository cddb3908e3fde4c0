"""What the recorder costs: calibrated when one is opened, on a scratch recorder that writes to memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stallbook.record.spool import MemorySpool

if TYPE_CHECKING:
    from stallbook.record.base import Base

__all__ = ["EVERY", "Cost"]

EVERY = 64
"""One step in so many measures its own `end`."""
_ROUNDS, _STEPS, _MARKS = 5, 12, 6
_PAUSE_NS = 2000
_cache: dict[tuple[str | None, bool], Cost] = {}


@dataclass(frozen=True)
class Cost:
    """Costs in ns of one step without segments, one segment mark, one request event, and of `end` alone."""

    step: int
    mark: int
    event: int
    end: int

    @classmethod
    def calibrated(cls, recorder: type[Base], os_counters: Literal["segment", "step"] | None, pool: bool) -> Cost:
        """Measured once in a process for each setting: about 1 ms."""
        key = (os_counters, pool)
        if key not in _cache:
            scratch: Any = recorder(
                "", engine="", os_counters=os_counters, pool_threads=pool, gc_pauses=False, store=MemorySpool()
            )
            _cache[key] = cls._measure(scratch)
            scratch.close()
        return _cache[key]

    @classmethod
    def _measure(cls, scratch: Any) -> Cost:
        clock, cpu, name = time.perf_counter_ns, time.thread_time_ns, scratch.name("x")
        bare: list[int] = []
        full: list[int] = []
        event: list[int] = []
        end: list[int] = []
        for _ in range(_ROUNDS):
            start = clock()
            for _ in range(_STEPS):
                scratch.begin()
                scratch.emit()
                scratch.end()
            bare.append((clock() - start) // _STEPS)
            start = clock()
            for _ in range(_STEPS):
                scratch.begin()
                for _ in range(_MARKS):
                    scratch.enter(name)
                scratch.emit()
                scratch.end()
            full.append((clock() - start) // _STEPS)
            start = clock()
            for _ in range(_STEPS):
                scratch.admit(0)
            event.append((clock() - start) // _STEPS)
            for _ in range(_STEPS):
                scratch.begin()
                for _ in range(_MARKS):
                    scratch.enter(name)
                start = cpu()
                scratch.end()
                end.append(cpu() - start)
        step, six, one, last = (sorted(figures)[len(figures) // 2] for figures in (bare, full, event, end))
        return cls(step, max(0, (six - step) // _MARKS), one, max(1, last))

    def total(self, samples: int, marks: int, measured: int, events: int, pauses: int) -> int:
        """Ns in all. Of `samples` steps, one in `EVERY`, the marks were counted and `end` was measured: in an engine
        the caches are cold, and that is what the factor is for.
        """
        factor = max(1.0, measured / (samples * self.end)) if samples else 1.0
        calm = EVERY * (samples * self.step + marks * self.mark) + events * self.event
        return int(factor * calm) + pauses * _PAUSE_NS
