"""The demonstrator: a serving engine on the CPU in which every stall is real.

Continuous batching over a random-weight transformer, a block pool that runs dry, Python's own collector, a real
tokenizer: the causes that stretch a token gap are not simulated, they happen. It knows stallbook only through
the recorder's public face, as any engine that someone instruments would.

Importing this package does not import NumPy: BLAS reads its thread count when NumPy is first imported, so
whoever starts a run sets the environment first (`python -m stallbook.demo` does).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stallbook.demo.settings import Settings
from stallbook.demo.summary import Progress, Stop, Summary

__all__ = ["Progress", "Settings", "Stop", "Summary", "serve"]


def serve(
    settings: Settings,
    out: Path | None,
    progress: Callable[[Progress], None] | None = None,
    *,
    stop: Stop | None = None,
) -> Summary:
    """Run the demonstrator once, in this process, and leave a log at `out` (none where `out` is None).

    Ends early, with a readable log, when `stop` is requested or on KeyboardInterrupt.
    Raises StallbookError where the settings, the folder, or this process's BLAS threads do not allow the run.
    """
    from stallbook.demo.serving import run  # NumPy comes with it

    return run(settings, out, progress, stop or Stop())
