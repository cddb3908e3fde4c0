"""Where requests come in and tokens are handed out: the server's event loop, or the program's own threads.

They are not the generation thread, which alone writes the log: what they see is put into queues that it empties.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.process import Process
from stallbook.adapters.transformers.handed import Handed
from stallbook.adapters.transformers.routed import Routed
from stallbook.notes.transformers import AGAIN, DELIVERED

__all__ = ["Frontend", "install"]

_TOKENIZE: Final = "tokenize"
_HANDLERS: Final = ("CompletionHandler", "ChatCompletionHandler", "ResponseHandler")
_REMEMBERED: Final = 1 << 12
"""Requests that are remembered on their way through the server, where some are refused, and once they are done."""
_NEVER: Final = 1 << 62
_SAMPLED: Final = 31
"""One of so many calls is timed: a prime, so that it is not always the same request's."""
_TAKEN_NS: Final = 500
"""Of the hook of a token that is taken what no clock inside it sees: of a step's all but the first find caches warm."""
_LONGEST_NS: Final = 50_000
"""A hook that took longer was interrupted."""
_OWN_NAMES: Final = "req_"
"""How the manager names requests that have no name: each manager begins anew."""


def install(module: ModuleType, process: Process) -> None:
    """Hook what takes a request that came over HTTP."""
    found = process.frontend = process.frontend or Frontend(process)
    for name in _HANDLERS:
        if (owner := getattr(module, name, None)) is not None and owner.__module__ == module.__name__:
            process.hooks.wrap(owner, "handle_request", found.handle_request)


class Frontend:
    """Arrivals and deliveries of this process. Hooks of any thread put in; `noted` runs on the generation thread."""

    def __init__(self, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.so_far: dict[str, int] = {}
        """Tokens of each request that the program took from the queue."""
        self.news: deque[tuple[str, bool]] = deque(maxlen=_REMEMBERED)
        """Requests that were given a callback, or cancelled (True), since the last batch."""
        self.routed = Routed(self.clock, self.news)
        self._forget()
        process.after_fork.append(self._forget)

    def _forget(self) -> None:
        self.came: dict[str, int] = {}
        self.handed = Handed()
        self.news.clear()
        self.routed.forget()
        self.finished: dict[str, int] = {}
        """Handles of requests that are done, and may not have been handed out yet."""
        self.cut_off: set[str] = set()
        """Those of them whose last output nobody is to take: cancelled ones, and all of an earlier manager's."""
        self.so_far.clear()
        self.spent = self._took = 0
        """What these hooks have cost, in ns, as told so far; and since."""
        self.last: list[str] = []
        """Who was in the last delivery that was told in full, and whether it may be said that another is `alike`."""
        self.alike = False

    @property
    def waits(self) -> bool:
        """Whether there is something to write."""
        return bool(self.handed) or self.routed.waits

    # On any thread.

    def handle_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The server got a request: it tokenizes it next."""
        clock = self.clock

        @functools.wraps(original)
        def handle_request(handler: Any, body: Any, request_id: Any = "", *args: Any, **more: Any) -> Any:
            if self.hooks.on and isinstance(request_id, str):
                try:
                    self.came[request_id] = clock()
                    if len(self.came) > _REMEMBERED:
                        del self.came[next(iter(self.came))]
                except Exception:
                    self.hooks.failed()
            return original(handler, body, request_id, *args, **more)

        return handle_request

    def register_result_handler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Somebody's callback gets each output, on the event loop that runs now: `Loop` stands in for it."""

        @functools.wraps(original)
        def register_result_handler(manager: Any, request_id: str, *args: Any, **more: Any) -> Any:
            result = original(manager, request_id, *args, **more)
            if self.hooks.on:
                try:
                    self.routed.stands_in(getattr(manager, "output_router", None), request_id)
                except Exception:
                    self.hooks.failed()
            return result

        return register_result_handler

    def get_result(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The program takes an output from the queue."""

        clock, hooks, so_far, calls = self.clock, self.hooks, self.so_far, 0

        @functools.wraps(original)
        def get_result(manager: Any, *args: Any, **more: Any) -> Any:
            nonlocal calls
            output = original(manager, *args, **more)
            if output is not None and hooks.on:
                try:
                    t, request, tokens = clock(), output.request_id, len(output.generated_tokens)
                    self.handed.put(request, tokens - so_far.get(request, 0), t)
                    so_far[request] = tokens
                    if output.is_finished():
                        so_far.pop(request, None)  # one of its name may have arrived meanwhile
                    calls += 1
                    if calls % _SAMPLED == 0:
                        self._sampled(clock() - t)
                except Exception:
                    hooks.failed()
            return output

        return get_result

    def _sampled(self, ns: int) -> None:
        """One of `_SAMPLED` tokens that were handed out took our hook so long."""
        self._took += min(ns + _TAKEN_NS, _LONGEST_NS) * _SAMPLED

    # On the generation thread.

    def arrived(self, request: str, prompt: int, limit: int, made: int, session: int) -> int:
        """A request that was made at `made` reached the generation thread. Returns its handle."""
        process, recorder = self.process, self.process.recorder
        if recorder is None:
            return -1
        came = self.came.pop(request, made)
        if request not in self.finished or request in self.cut_off:
            self.so_far.pop(request, None)  # of an earlier one of that name, whose last output is not to come
            self.cut_off.discard(request)
        name = f"{request}@{session}" if session > 1 and request.startswith(_OWN_NAMES) else request
        handle = process.handles[request] = recorder.arrive(name, prompt, limit, min(came, made))
        if self.finished.pop(request, None) is not None:
            self.alike = False  # the last one was of another request of that name
        if came < made:
            recorder.hold(handle, _TOKENIZE, came)
            recorder.release(handle, _TOKENIZE, made)
        return handle

    def gone(self, requests: Iterable[str]) -> list[int]:
        """Requests are done: what was handed out of them may still have to be told. Returns their handles."""
        found = []
        for request in requests:
            if (handle := self.process.handles.pop(request, None)) is not None:
                self.finished[request] = handle
                found.append(handle)
        while len(self.finished) > _REMEMBERED:
            old = next(iter(self.finished))
            del self.finished[old]
            self.cut_off.discard(old)
            self.so_far.pop(old, None)
        return found

    def cost(self) -> int:
        """What these hooks have cost since the last time."""
        took, self._took = self._took, 0
        self.spent += took
        return took

    def noted(self, last: bool = False) -> list[int]:
        """What was handed out since the last time. last: what may go on, too."""
        notes: list[int] = []
        self.alike = False  # what was told before may be lost
        for one in self.handed.take(_NEVER if last else self.clock()):
            if not isinstance(one, int):
                self.last = one[0]
                notes += self._delivered(*one)
            elif self.alike:
                notes += (AGAIN, one)
            else:
                notes += self._delivered(self.last, [1] * len(self.last), one)
        return notes + self.routed.noted()

    def _delivered(self, names: list[str], tokens: list[int], t: int) -> Iterable[int]:
        known, done = self.process.handles, self.finished
        handles = [known.get(request, done.get(request, -1)) for request in names]
        if min(handles, default=0) < 0 or min(tokens, default=1) < 1:  # never seen; or of an answer that did not grow
            found = [pair for pair in zip(handles, tokens, strict=True) if pair[0] >= 0 < pair[1]]
            handles, tokens = [handle for handle, _ in found], [count for _, count in found]
        self.alike = True
        return DELIVERED, t, len(handles), *handles, *tokens
