"""The life of a request on the generation thread: it comes in, loses its cache, is cancelled, is done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stallbook.notes.transformers import EVICTED, ROUTED
from stallbook.notes.words import BY_KV, BY_SEQS

if TYPE_CHECKING:
    from stallbook.adapters.transformers.engine import Engine

__all__ = ["blocked", "has_callback", "heard", "told", "watch"]


def watch(engine: Engine, processor: Any) -> None:
    """Hook the classes of the engine's scheduler, of what evicts, and of what parks the engine."""
    wrap, scheduler = engine.hooks.wrap, type(engine.scheduler)
    for name, make in (
        ("add_waiting_request", _add_waiting_request), ("finish_request", _finish_request),
        ("set_request_cancellation", _set_request_cancellation),
    ):  # fmt: skip
        wrap(scheduler, name, functools.partial(make, engine))
    offloader = type(engine.offloader)
    wrap(offloader, "offload_requests", functools.partial(_offload_requests, engine))
    if getattr(engine.offloader, "_cpu_pool", None) is not None:
        swap = engine.recorder.name("swap")
        for name in ("_offload_to_cpu", "restore_scheduled_requests"):
            wrap(offloader, name, functools.partial(_swap, engine, swap))
    if (status := getattr(processor, "background_thread_status", None)) is not None:
        pause = engine.recorder.name("pause")
        wrap(type(status), "pause_and_wait", functools.partial(_pause_and_wait, engine, pause))


def told(state: Any) -> tuple[str, int, int, int]:
    """Of a new request its id, the lengths of its prompt and at most of its answer, and when it was made."""
    prompt = getattr(state, "_true_initial_tokens", 0) or len(state.initial_tokens)
    limit = state.max_new_tokens
    return state.request_id, prompt, limit if isinstance(limit, int) else -1, round(state.created_time * 1e9)


def blocked(scheduler: Any) -> int:
    """What keeps its first waiting request out; 0 where none waits, -1 where there is no scheduler any more."""
    if scheduler is None:
        return -1
    if not scheduler.waiting_requests:
        return 0
    return BY_SEQS if len(scheduler.active_requests) >= scheduler.max_requests_per_batch else BY_KV


def _add_waiting_request(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    """New requests; evicted ones come this way too, while the engine evicts."""

    @functools.wraps(original)
    def add_waiting_request(scheduler: Any, state: Any, *args: Any, **more: Any) -> Any:
        if engine.hooks.on and scheduler is engine.scheduler and not engine.offloading and engine.later is not None:
            try:
                engine.arrived(state)
            except Exception:
                engine.hooks.failed()
        return original(scheduler, state, *args, **more)

    return add_waiting_request


def _finish_request(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    """Requests that are done, or failed; evicted ones come this way too."""

    @functools.wraps(original)
    def finish_request(scheduler: Any, request_id: str, *args: Any, **more: Any) -> Any:
        if engine.hooks.on and scheduler is engine.scheduler and not engine.offloading and engine.later is not None:
            try:
                if engine.updating:
                    engine.ended.append(request_id)
                else:
                    engine.finished([request_id], engine.clock())
            except Exception:
                engine.hooks.failed()
        return original(scheduler, request_id, *args, **more)

    return finish_request


def _set_request_cancellation(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    """A request is to be taken out as the next batch is made."""

    @functools.wraps(original)
    def set_request_cancellation(scheduler: Any, request_id: str, *args: Any, **more: Any) -> Any:
        if engine.hooks.on and scheduler is engine.scheduler:
            engine.news.append((request_id, True))
        return original(scheduler, request_id, *args, **more)

    return set_request_cancellation


def has_callback(engine: Engine, state: Any) -> None:
    """Note that a request has one, as was registered, now that it is here."""
    routed, request = engine.frontend.routed, state.request_id
    handle, router = engine.handles.get(request), routed.registered.pop(request, None)
    if handle is not None and router is routed.router and engine.later is not None:
        engine.later.entries += (ROUTED, handle, bool(getattr(state, "streaming", True)))


def heard(engine: Engine, t: int) -> None:
    """Some requests got a callback, others were cancelled: of these, those that are in no queue and no batch any more
    are gone. One that is in a batch still gets its token.
    """
    news, active, waiting = engine.news, engine.scheduler.active_requests, engine.scheduler.waiting_requests
    if engine.batches is None:
        return
    gone, flies = list[str](), engine.batches.flies
    for _ in range(len(news)):
        request, cancelled = news.popleft()
        state = active.get(request) or waiting.get(request)
        if state is not None:
            has_callback(engine, state)
        if not cancelled:
            continue
        if state is None and not flies(engine.handles.get(request, -1)):
            gone.append(request)
        else:
            news.append((request, True))
    if gone:
        engine.cut_off(gone, t)


def _offload_requests(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    """Starved requests lose their cache: copied to the host, or dropped, to be computed again (a soft reset)."""

    @functools.wraps(original)
    def offload_requests(offloader: Any, *args: Any, **more: Any) -> Any:
        if not engine.hooks.on or offloader is not engine.offloader:
            return original(offloader, *args, **more)
        t, starved = engine.clock(), {}
        try:
            starved = {one.request_id: one.position_offset for one, _ in engine.scheduler.starved_requests}
        except Exception:
            engine.hooks.failed()
        engine.offloading = True
        try:
            result = original(offloader, *args, **more)
        finally:
            engine.offloading = False
        try:
            _evicted(engine, starved, t)
        except Exception:
            engine.hooks.failed()
        return result

    return offload_requests


def _evicted(engine: Engine, starved: dict[str, int], t: int) -> None:
    """Of the starved, whoever is not active any more was evicted at `t`."""
    active, waiting = engine.scheduler.active_requests, engine.scheduler.waiting_requests
    for request, computed in starved.items():
        handle = engine.handles.get(request, -1)
        if request not in active and handle >= 0 and engine.later is not None:
            kept = getattr(waiting.get(request), "is_cpu_offloaded", False)
            engine.later.entries += (EVICTED, handle, 0 if kept else computed, t, not kept)


def _swap(engine: Engine, name: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Caches are copied to the host, or back."""

    @functools.wraps(original)
    def swap(offloader: Any, *args: Any, **more: Any) -> Any:
        t0 = engine.clock()
        result = original(offloader, *args, **more)
        if engine.hooks.on and offloader is engine.offloader:
            try:
                engine.windows += (name, t0, engine.clock())
            except Exception:
                engine.hooks.failed()
        return result

    return swap


def _pause_and_wait(engine: Engine, name: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """The program asked for a pause, to change weights say: the engine is parked in the midst of making a batch."""

    @functools.wraps(original)
    def pause_and_wait(status: Any, *args: Any, **more: Any) -> Any:
        if not engine.hooks.on or status is not getattr(engine.processor, "background_thread_status", None):
            return original(status, *args, **more)
        if engine.later is not None:
            engine.hooks.call(engine.later.flush)  # nobody knows how long it will be
        t0 = engine.clock()
        result = original(status, *args, **more)
        engine.windows += (name, t0, engine.clock())
        return result

    return pause_and_wait
