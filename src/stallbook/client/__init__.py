"""What a client saw: the deliveries that a load generator stamped, joined to an engine's log.

A client's log is read into plain data (`Seen`), whatever its format, and joined to a run by the requests' ids and by
the clock, which the two have to share: `time.perf_counter_ns` of one machine. Then the partition can cut a gap at the
client into the engine's part, `frontend` and `network`. See docs/client.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from stallbook.client.join import joined
from stallbook.client.read import read
from stallbook.client.seen import Chunk, Request, Seen
from stallbook.client.served import joined_by_server
from stallbook.run import Run

__all__ = ["Chunk", "Request", "Seen", "join", "joined", "joined_by_server", "read"]


def join(run: Run, path: str | os.PathLike[str]) -> Run:
    """The run with the deliveries that a client's log holds; `StallbookError` where the two do not belong together."""
    seen = read(Path(path))
    return joined_by_server(run, seen) if seen.served else joined(run, seen)
