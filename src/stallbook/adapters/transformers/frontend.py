"""Where requests come in and tokens are handed out: the server's event loop, or the program's own threads.

They are not the generation thread, which alone writes the log: what they see is put into queues that it empties.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.process import Process

__all__ = ["Frontend", "install"]

_TOKENIZE: Final = "tokenize"
_HANDLERS: Final = ("CompletionHandler", "ChatCompletionHandler", "ResponseHandler")
_MOST: Final = 1 << 16
"""Deliveries, and requests that are done, that are kept while nobody takes them."""
_COMING: Final = 1 << 12
"""Requests on their way through the server that are remembered: some are refused, and never come."""
_AT_ONCE_NS: Final = 1_000_000
"""Tokens that were handed out one after the other, with less between any two, were handed out at once."""
_OWN_NAMES: Final = "req_"
"""How the manager names requests that have no name: each manager begins anew."""


def install(module: ModuleType, process: Process) -> None:
    """Hook what takes a request that came over HTTP."""
    found = process.frontend = process.frontend or Frontend(process)
    for name in _HANDLERS:
        if (owner := getattr(module, name, None)) is not None and owner.__module__ == module.__name__:
            process.hooks.wrap(owner, "handle_request", found.handle_request)


class Frontend:
    """Arrivals and deliveries of this process. Hooks of any thread put in; `write` runs on the generation thread."""

    def __init__(self, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self._forget()
        process.after_fork.append(self._forget)

    def _forget(self) -> None:
        self.came: dict[str, int] = {}
        self.handed: deque[tuple[str, int, int, bool]] = deque(maxlen=_MOST)
        """Request, tokens so far, when, and whether these are the last."""
        self.finished: dict[str, int] = {}
        """Handles of requests that are done, and may not have been handed out yet."""
        self.so_far: dict[str, int] = {}
        self.last: dict[int, int] = {}

    @property
    def waits(self) -> bool:
        """Whether there is something to write."""
        return bool(self.handed)

    # On any thread.

    def handle_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The server got a request: it tokenizes it next."""
        clock = self.clock

        @functools.wraps(original)
        def handle_request(handler: Any, body: Any, request_id: Any = "", *args: Any, **more: Any) -> Any:
            if self.hooks.on and isinstance(request_id, str):
                try:
                    self.came[request_id] = clock()
                    if len(self.came) > _COMING:
                        del self.came[next(iter(self.came))]
                except Exception:
                    self.hooks.failed()
            return original(handler, body, request_id, *args, **more)

        return handle_request

    def register_result_handler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Somebody's callback gets each output: stamp when it returned."""

        @functools.wraps(original)
        def register_result_handler(
            manager: Any, request_id: str, callback: Callable[..., Any], *args: Any, **more: Any
        ) -> Any:
            return original(manager, request_id, self._stamped(request_id, callback), *args, **more)

        return register_result_handler

    def _stamped(self, request_id: str, callback: Callable[..., Any]) -> Callable[..., Any]:
        put, clock = self.handed.append, self.clock

        def handed(output: Any) -> Any:
            result = callback(output)
            try:
                put((request_id, len(output.generated_tokens), clock(), output.is_finished()))
            except Exception:
                self.hooks.failed()
            return result

        return handed

    def get_result(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The program takes an output from the queue."""

        @functools.wraps(original)
        def get_result(manager: Any, *args: Any, **more: Any) -> Any:
            output = original(manager, *args, **more)
            if output is not None and self.hooks.on:
                try:
                    tokens = len(output.generated_tokens)
                    self.handed.append((output.request_id, tokens, self.clock(), output.is_finished()))
                except Exception:
                    self.hooks.failed()
            return output

        return get_result

    # On the generation thread.

    def arrived(self, request: str, prompt: int, limit: int, made: int, session: int) -> None:
        """A request that was made at `made` reached the generation thread."""
        process, recorder = self.process, self.process.recorder
        if recorder is None:
            return
        came = self.came.pop(request, made)
        name = f"{request}@{session}" if session > 1 and request.startswith(_OWN_NAMES) else request
        handle = process.handles[request] = recorder.arrive(name, prompt, limit, min(came, made))
        self.finished.pop(request, None)
        self.so_far.pop(request, None)
        if came < made:
            recorder.hold(handle, _TOKENIZE, came)
            recorder.release(handle, _TOKENIZE, made)

    def gone(self, requests: Iterable[str]) -> None:
        """Requests are done: what was handed out of them may still have to be told."""
        for request in requests:
            if (handle := self.process.handles.get(request)) is not None:
                self.finished[request] = handle
        while len(self.finished) > _MOST:
            del self.finished[next(iter(self.finished))]

    def write(self) -> None:
        """Write what was handed out since the last time; what was handed out at once, as one delivery."""
        at_once: dict[int, int] = {}
        last = 0
        for request, count, t, over in list(itertools.islice(self.handed, len(self.handed))):
            self.handed.popleft()
            handle = self.process.handles.get(request, self.finished.get(request, -1))
            before = self.so_far.get(request, 0)
            if handle >= 0 and count > before:
                if at_once and (t - last > _AT_ONCE_NS or handle in at_once):
                    self._deliver(at_once, last)
                    at_once = {}
                at_once[handle], last = count - before, t
            if over:
                self.so_far.pop(request, None)
                self.finished.pop(request, None)
            elif count > before:
                self.so_far[request] = count
        if at_once:
            self._deliver(at_once, last)

    def _deliver(self, tokens: dict[int, int], t: int) -> None:
        recorder = self.process.recorder
        if recorder is None:
            return
        if tokens == self.last:
            recorder.delivered_again(t)
        else:
            recorder.delivered(tokens.keys(), tokens.values(), t)
            self.last = tokens
