"""What a run says of itself: progress while it runs, a summary when it ends, and a way to stop it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Progress", "Stop", "Summary"]


@dataclass(frozen=True, slots=True)
class Progress:
    """A tick, about five a second. `phase` is "starting", "calibrating", "serving" or "draining"."""

    phase: str
    elapsed: float
    total: float
    tokens: int = 0
    running: int = 0
    waiting: int = 0


@dataclass
class Stop:
    """A request to end early. The engine looks at it once a step: nothing is torn out of the middle of one."""

    requested: bool = False

    def request(self) -> None:
        """Ask the run to end after the step it is in."""
        self.requested = True


@dataclass
class Summary:
    """One finished run. Counts are the engine's own; the log is the evidence."""

    path: str = ""
    requests: int = 0
    """Requests that arrived."""
    finished: int = 0
    unfinished: int = 0
    """Still waiting, running or evicted when the run ended; more than 0 only past the drain limit or interrupted."""
    tokens: int = 0
    steps: int = 0
    preemptions: int = 0
    """Times a running request lost its KV, restarts of a prefill included."""
    evictions: int = 0
    restarts: int = 0
    eager_steps: int = 0
    max_batch: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time of the engine thread while serving."""
    rate: float = 0.0
    capacity: float | None = None
    """Tokens a second that a saturated burst made; None where the rate was given."""
    capacity_spread: float | None = None
    """Interquartile range of the burst's quarter-seconds, as a fraction of the capacity."""
    capacity_probe_ns: int | None = None
    """The machine probe's median during the burst, to hold against the run's own."""
    load: float | None = None
    """The fraction of the capacity that `rate` asks for; None where the rate was given."""
    interrupted: bool = False
    drain_limit_hit: bool = False
    trace_sha256: str = ""
    blas: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-able copy."""
        return asdict(self)
