"""The forward pass: when a batch was laid out, ran and sampled, by which path, and when its tokens were there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from stallbook.adapters.device import DeviceLane, Track, cuda_lane

if TYPE_CHECKING:
    from stallbook.adapters.transformers.engine import Engine

__all__ = ["Graphs", "undo", "watch"]

_CAPTURED, _EAGER = 1, 2
_FLAGS: Final = ("use_cuda_graph_varlen", "use_cuda_graph_decode")


def watch(engine: Engine, processor: Any) -> None:
    """Hook the classes of the engine's model runner and of where batches are laid out."""
    runner, ios = processor.model_runner, processor.inputs_and_outputs
    pairs = getattr(ios, "io_pairs", None)
    engine.runner = runner
    engine.inputs = tuple(pair.host_io for pair in pairs) if pairs else (ios,)
    engine.ahead = len(engine.inputs) > 1
    lane = engine.noter.device = cuda_lane(engine.hooks, engine.clock)
    if lane is not None:
        lane.stream = getattr(ios, "compute_stream", None)
    wrap, kind = engine.hooks.wrap, type(engine.inputs[0])
    wrap(kind, "prepare_batch_tensors", functools.partial(_prepare_batch_tensors, engine))
    if engine.ahead:
        wrap(kind, "prepare_batch_update", functools.partial(_prepare_batch_update, engine))
    wrap(type(runner), "compute_batch", functools.partial(_compute_batch, engine))
    graphs = any(getattr(runner, name, False) for name in _FLAGS)
    engine.graphs = Graphs() if graphs else None
    if graphs:
        wrap(type(runner), "maybe_pad_inputs", functools.partial(_maybe_pad_inputs, engine))
        wrap(type(ios), "get_graph", functools.partial(_get_graph, engine))
    elif not getattr(runner, "pad_inputs", False):  # a compiled pass must not find a hook inside
        wrap(runner, "_sample", functools.partial(_sample, engine), f"{type(runner).__name__}._sample")


def undo(engine: Engine) -> None:
    """Take back what was hooked of an object, and not of a class: it may serve again, compiled."""
    getattr(engine.runner, "__dict__", {}).pop("_sample", None)


class Graphs:
    """What the runner said last: the padded size of the next pass, and whether there was a graph to be replayed."""

    __slots__ = ("padded", "replayed")

    def __init__(self) -> None:
        self.padded, self.replayed = -1, False


def _prepare_batch_tensors(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    clock, hooks, noter = engine.clock, engine.hooks, engine.noter

    @functools.wraps(original)
    def prepare_batch_tensors(ios: Any, *args: Any, **more: Any) -> Any:
        t = clock()
        result = original(ios, *args, **more)
        if hooks.on and ios in engine.inputs:
            try:
                engine.batch, engine.tensors, engine.queries = ios.requests_in_batch, t, more.get("num_q_tokens", 0)
                engine.track = None if noter.device is None else Track()
            except Exception:
                hooks.failed()
        return result

    return prepare_batch_tensors


def _prepare_batch_update(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    """The engine turns to a batch's tokens as soon as the device is done with it: its emission. Where no batch is made
    ahead, that is when it comes to update one.
    """
    hooks = engine.hooks

    @functools.wraps(original)
    def prepare_batch_update(ios: Any, *args: Any, **more: Any) -> Any:
        if engine.ahead and engine.updating and hooks.on and ios in engine.inputs:
            engine.came_back(ios)
        return original(ios, *args, **more)

    return prepare_batch_update


def _compute_batch(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    recorder, stamps, noter, hooks = engine.recorder, engine.stamps, engine.noter, engine.hooks
    decode = recorder.name("decode")
    forward, launch = stamps.stamp(decode), stamps.stamp(recorder.name("launch"))
    waits = stamps.stamp(recorder.name("dispatch"))

    @functools.wraps(original)
    def compute_batch(runner: Any, *args: Any, **more: Any) -> Any:
        if not hooks.on or runner is not engine.runner:
            return original(runner, *args, **more)
        lane, t = noter.device, engine.clock() if engine.graphs is not None else 0
        if lane is None:
            forward()
        else:
            launch()
            _mark(engine, lane, decode)
        result = original(runner, *args, **more)
        if lane is not None:
            waits()
            _mark(engine, lane)
        if engine.graphs is not None:
            _took(engine, t)
        return result

    return compute_batch


def _mark(engine: Engine, lane: DeviceLane, name: int = -1) -> None:
    try:
        if engine.track is not None:
            lane.mark(engine.track, name)
    except Exception:
        engine.hooks.failed()


def _took(engine: Engine, t: int) -> None:
    """Which path the pass took that was launched at `t`."""
    graphs = engine.graphs
    if graphs is not None:
        engine.noter.graphs.append((t, _CAPTURED if graphs.replayed else _EAGER, graphs.padded))
        graphs.replayed = False


def _sample(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    name, noter = engine.recorder.name("sample"), engine.noter
    stamp = engine.stamps.stamp(name)

    @functools.wraps(original)
    def sample(*args: Any, **more: Any) -> Any:
        if noter.device is None:
            stamp()
        else:
            _mark(engine, noter.device, name)
        return original(*args, **more)

    return sample


def _maybe_pad_inputs(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def maybe_pad_inputs(runner: Any, *args: Any, **more: Any) -> Any:
        result = original(runner, *args, **more)
        if engine.graphs is not None and runner is engine.runner:
            try:
                engine.graphs.padded = int(result[0])
            except Exception:
                engine.hooks.failed()
        return result

    return maybe_pad_inputs


def _get_graph(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    """A graph to be replayed; None where there is none yet: it runs eagerly, and one is captured."""

    @functools.wraps(original)
    def get_graph(ios: Any, *args: Any, **more: Any) -> Any:
        result = original(ios, *args, **more)
        if engine.graphs is not None:
            engine.graphs.replayed = result is not None
        return result

    return get_graph
