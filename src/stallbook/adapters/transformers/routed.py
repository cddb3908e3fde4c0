"""Outputs that go to callbacks: a step's are handed out on an event loop one after the other, and stamped as one.

The generation thread says which step's they are when it sends them; the event loop, when the last callback returned.
Who has a callback is noted once a request, so that nothing is done for each token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from stallbook.adapters.transformers.requests import heard
from stallbook.notes.transformers import HANDED, HANDED_REST

if TYPE_CHECKING:
    from stallbook.adapters.transformers.engine import Engine

__all__ = ["Loop", "Routed", "Sent"]

_MOST: Final = 1 << 12
"""Steps whose outputs are kept until they are handed out and written; callbacks of requests that have not arrived."""


class Sent:
    """Outputs on their way: the kind of their note, and whose they are. t: when all were handed out, 0 before."""

    __slots__ = ("_clock", "kind", "number", "t")

    def __init__(self, kind: int, number: int, clock: Callable[[], int]) -> None:
        self.kind, self.number, self._clock, self.t = kind, number, clock, 0

    def hand_out(self, callback: Callable[..., object], *args: Any) -> None:
        """Call what hands them out, on the event loop."""
        callback(*args)
        self.t = self._clock()


class Loop:
    """Stands in for an event loop where the router looks for it, and sends to it what the router sends."""

    __slots__ = ("_loop", "_routed", "_router")

    def __init__(self, loop: Any, router: Any, routed: Routed) -> None:
        self._loop, self._router, self._routed = loop, router, routed

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, **more: Any) -> Any:
        """As the loop's."""
        if (sent := self._routed.sent(self._router, args)) is None:
            return self._loop.call_soon_threadsafe(callback, *args, **more)
        return self._loop.call_soon_threadsafe(sent.hand_out, callback, *args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class Routed:
    """What one engine's router sends, on the generation thread. registered: requests that have a callback, put in by
    any thread, and their routers, until that is noted. news: gets each of them, too.
    """

    def __init__(self, clock: Callable[[], int], news: deque[tuple[str, bool]]) -> None:
        self._clock, self._news = clock, news
        self.registered = WeakValueDictionary[str, Any]()  # nothing here is to keep a router, and so a model, alive
        self.router: Any = None
        self._sent: deque[Sent] = deque(maxlen=_MOST)
        self.forget()

    def forget(self) -> None:
        """Nothing is under way."""
        self.begins(None, None)
        self.registered.clear()
        self._sent.clear()

    def begins(self, engine: Engine | None, router: Any) -> None:
        """An engine begins, with that router; or there is none."""
        self.engine, self.router = engine, router

    @property
    def waits(self) -> bool:
        """Whether something was handed out that is not noted."""
        return any(one.t for one in self._sent)

    def stands_in(self, router: Any, request: str) -> None:
        """A request's callback was registered, to be called on an event loop."""
        handlers = getattr(router, "result_handlers", {})
        match handlers.get(request):
            case (callback, loop):
                handlers[request] = callback, Loop(loop, router, self)
                self.registered[request] = router
                if len(self.registered) > _MOST:
                    self.registered.pop(next(iter(self.registered)), None)
                self._news.append((request, False))

    def sent(self, router: Any, args: Sequence[Any]) -> Sent | None:
        """A router is about to send something that calls callbacks. args: the output, if it is of one request alone: it
        failed, and gets what it has not been handed yet. Else they are a step's, which is being worked off.
        """
        engine = self.engine
        if router is not self.router or engine is None or not engine.hooks.on:
            return None
        try:
            if self._news:
                heard(engine, self._clock())
            if args:
                kind, number = HANDED_REST, engine.handles.get(args[0].request_id, -1)
            elif engine.emission is not None:
                kind, number = HANDED, engine.emission[1]
            else:
                return None
            sent = Sent(kind, number, self._clock)
            self._sent.append(sent)
            return sent
        except Exception:
            engine.hooks.failed()
            return None

    def noted(self) -> list[int]:
        """What was handed out since the last time. What went before it and was not will not be: its callback raised."""
        notes: list[int] = []
        while self.waits:
            one = self._sent.popleft()
            if one.t:
                notes += (one.kind, one.t, one.number)
        return notes
