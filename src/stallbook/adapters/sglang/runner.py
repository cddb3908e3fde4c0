"""SGLang's model runner: when it ran the forward pass and when it sampled, on the host and on a device; its graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from stallbook.adapters.device import DeviceLane, Track
from stallbook.adapters.hooks import Hooks
from stallbook.adapters.stamps import Stamps
from stallbook.notes.steps import NO_GRAPH
from stallbook.record import WholeRecorder

__all__ = ["watch"]

_CAPTURED, _EAGER = 1, 2
_RUNNERS: Final = ("decode_cuda_graph_runner", "graph_runner", "cuda_graph_runner")
"""What the runner of captured decodes was called, the newest first."""
_LAUNCH: Final = "launch"
"""The host's part of a forward pass that a device runs."""


def watch(
    hooks: Hooks, scheduler: Any, stamps: Stamps, recorder: WholeRecorder, lane: DeviceLane | None,
    track: Callable[[], Track | None],
) -> Callable[[Any, Any], tuple[int, int]] | None:  # fmt: skip
    """Stamp forward pass and sampling from now on. Returns what tells a batch's graph code and padded size, if any.

    `track()` is the device's, of the step that runs now.
    """
    worker = getattr(scheduler, "tp_worker", None)
    runner = getattr(worker, "model_runner", None)
    for name, host in (("forward", "decode" if lane is None else _LAUNCH), ("sample", "sample")):
        enter, leave = stamps.stamp(recorder.name(host)), stamps.stamp(recorder.name("dispatch"))
        if lane is not None:
            enter = _also(enter, hooks, lane, track, recorder.name("decode" if name == "forward" else name))
            leave = _also(leave, hooks, lane, track, -1)
        hooks.wrap(runner, name, functools.partial(_between, enter, leave), f"model_runner.{name}")
    graphs = next((g for g in (getattr(runner, name, None) for name in _RUNNERS) if g is not None), None)
    if graphs is getattr(runner, "eager_runner", None):
        graphs = None
    hooks.found["can_run_cuda_graph"] = hasattr(runner, _RUNNERS[0]) or graphs is not None
    return None if graphs is None else functools.partial(_graph, graphs)


def _between(enter: Callable[[], Any], leave: Callable[[], Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **more: Any) -> Any:
        enter()
        result = original(*args, **more)
        leave()
        return result

    return call


def _also(
    stamp: Callable[[], Any], hooks: Hooks, lane: DeviceLane, track: Callable[[], Track | None], name: int
) -> Callable[[], Any]:  # fmt: skip
    """Stamp the host and the device."""

    def both() -> None:
        stamp()
        try:
            if hooks.on and (now := track()) is not None:
                lane.mark(now, name)
        except Exception:
            hooks.failed()

    return both


def _graph(graphs: Any, batch: Any, result: Any) -> tuple[int, int]:
    """As the runner reports it; a prefill is not captured, and none of it is charged to that."""
    if not batch.forward_mode.is_decode():
        return NO_GRAPH
    if not result.can_run_cuda_graph:
        return _EAGER, -1
    padded = getattr(graphs, "bs", -1)
    return _CAPTURED, padded if isinstance(padded, int) else -1
