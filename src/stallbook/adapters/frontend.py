"""A process that takes requests and hands out tokens: when each came in, went to the engine, and when tokens came back.

It knows what the engine counts for itself, too, and notes it whenever no request is left.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, Final

from stallbook.adapters.process import Process

__all__ = ["Frontend"]

_SAMPLED: Final = 32
_LONGEST_NS: Final = 100_000
"""A hook that took longer was interrupted."""
_FEW: Final = 64
"""So many requests that are over may be remembered."""
_TOKENIZE: Final = "tokenize"
_LATEST_NS: Final = 600 * 10**9
"""An arrival longer ago than this was not stamped by this server's clock."""


class Frontend:
    """What the hooks of one frontend share. `counters()` gives the engine's own counts: by name, then by engine."""

    def __init__(self, process: Process, counters: Callable[[], Mapping[str, Mapping[str, int]]]) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.counters = counters
        self._forget()
        process.after_fork.append(self._forget)

    def _forget(self) -> None:
        self.requests: list[str] = []
        self.tokens: list[int] = []
        self.calls = 0
        self.due = False
        self.many = _FEW
        """So many requests are worth a look at who is still alive."""

    def since(self, unix_s: float, now: int) -> int:
        """When it was so many seconds after 1970, on the recorder's clock; `now` where that cannot be."""
        ago = time.time_ns() - int(unix_s * 1e9)
        return now - ago if 0 <= ago < _LATEST_NS else now

    def arrived(self, request: str, came: int, now: int, prompt: int = -1, limit: int = -1) -> None:
        """A request that came in at `came` is tokenized, and goes to the engine next."""
        process = self.process
        if not process.role:
            process.become_frontend()
            process.told_hooks()
        if not self.calls:
            atexit.register(self.read)  # runs before the recorder's own, which was registered first
        recorder = process.recorder
        if recorder is None:
            return
        if self.due:
            self.read()
        if request in self.requests and request not in process.handles:
            self.requests = []  # the last delivery's was another one of that name: the next is not as the last
        handle = process.arrived(request, prompt, limit, came)
        recorder.hold(handle, _TOKENIZE, came)
        recorder.release(handle, _TOKENIZE, now)

    def forget(self, alive: Container[str]) -> None:
        """Drop requests that are over, once they are many: done, stopped, given up, or refused by the engine.

        Where the engine is in this process, it does so.
        """
        handles, recorder = self.process.handles, self.process.recorder
        if len(handles) < self.many or self.process.role == "engine" or recorder is None:
            return
        for request in [one for one in handles if one not in alive]:
            recorder.finish(handles.pop(request))
        self.many = 2 * len(handles) + _FEW

    def handed(self, requests: list[str], tokens: list[int], t: int) -> None:
        """So many tokens of each of `requests` were handed to those who wait for them."""
        recorder = self.process.recorder
        if recorder is None:
            return
        if requests == self.requests and tokens == self.tokens:
            recorder.delivered_again(t)
        else:
            self._changed(recorder, requests, tokens, t)
        self.calls += 1
        if self.calls % _SAMPLED == 0:
            recorder.spent(min(self.clock() - t, _LONGEST_NS) * _SAMPLED)

    def _changed(self, recorder: Any, requests: list[str], tokens: list[int], t: int) -> None:
        handles = self.process.handles
        known = [(handles[one], count) for one, count in zip(requests, tokens, strict=True) if one in handles]
        recorder.delivered([handle for handle, _ in known], [count for _, count in known], t)
        self.requests, self.tokens = requests, tokens

    def rests(self) -> None:
        """No request is left: a good time to read the engine's counts, once it has counted what was just handed out."""
        self.due = True
        try:
            asyncio.get_running_loop().call_soon(self.read)
        except RuntimeError:
            return  # no event loop: read when the next request comes, or at the end

    def read(self) -> None:
        """Note the engine's own counts, so that a report can hold the log against them."""
        try:
            if self.due:
                self.due = False
                self.process.fact("counters", self.counters())
        except Exception:
            self.hooks.failed()
