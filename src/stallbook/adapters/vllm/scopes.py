"""vLLM's own scopes of the model runner, through the factory that it keeps for profilers; and its graph dispatcher."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from stallbook.adapters.device import DeviceLane, Track, cuda_lane
from stallbook.adapters.hooks import Hooks
from stallbook.adapters.stamps import Scopes, Stamps
from stallbook.record import WholeRecorder

__all__ = ["LABEL", "give_back", "take_over", "watch_graphs"]

_FACTORY: Final = "_PROFILER_FUNC"
LABEL: Final = f"vllm.v1.utils.{_FACTORY}"
_PROFILERS: Final = ("VLLM_CUSTOM_SCOPES_FOR_PROFILING", "VLLM_NVTX_SCOPES_FOR_PROFILING")
_RUNNER: Final = "gpu_model_runner: "
_HANDOFF: Final = ""
_STARTS: Final = (
    ("preprocess", "runner"), ("forward", "decode"), ("postprocess", "logits"), ("sample", "sample"),
    ("draft", "draft"), ("bookkeep", "runner"), ("eplb", _HANDOFF),
)  # fmt: skip
"""What begins where a scope of the runner is entered. `eplb` follows upon `bookkeep` at once."""
_LAUNCH: Final = "launch"
"""The host's part of a forward pass that a device runs."""
_DEVICE: Final = {"forward": "decode", "postprocess": "sample", "bookkeep": _HANDOFF}
"""What begins on the device's stream there."""
_CAPTURED, _EAGER = 1, 2

Following = Callable[[], Track | None]


def take_over(
    hooks: Hooks, stamps: Stamps, recorder: WholeRecorder, handoff: str, track: Following
) -> DeviceLane | None:  # fmt: skip
    """Stamp the scopes of the model runner from now on; on a device too, whose lane is returned.

    `track()` is the one of the step that runs now. Does nothing where this vLLM has no such factory, or it is in use.
    """
    hooks.found[LABEL] = False
    utils = sys.modules.get("vllm.v1.utils")
    known = getattr(utils, _FACTORY, False)  # None until it is first used
    if known is not None and getattr(known, "__name__", "") != "nullcontext":
        return None
    if not hasattr(utils, "record_function_or_nullcontext") or _wanted_by_a_profiler():
        return None
    lane = cuda_lane(hooks, stamps.clock)
    table = Scopes()
    for scope, name in _STARTS:
        host = _LAUNCH if lane is not None and scope == "forward" else name or handoff
        start = stamps.stamp(recorder.name(host))
        leave = stamps.stamp(recorder.name(handoff)) if scope == "postprocess" else None
        if lane is not None and scope in _DEVICE:
            began = _DEVICE[scope]
            start = _both(start, lane, recorder.name(began) if began else -1, track, hooks)
        table[_RUNNER + scope] = table.scope(start, leave)
    setattr(utils, _FACTORY, table.__getitem__)
    hooks.found[LABEL] = True
    return lane


def give_back() -> None:
    """Let vLLM choose anew who gets its scopes, if we have them."""
    utils = sys.modules.get("vllm.v1.utils")
    if isinstance(getattr(getattr(utils, _FACTORY, None), "__self__", None), Scopes):
        setattr(utils, _FACTORY, None)


def _wanted_by_a_profiler() -> bool:
    """Whether the user asked for the scopes to go elsewhere: then they do."""
    envs = sys.modules.get("vllm.envs")
    return any(getattr(envs, name, False) for name in _PROFILERS)


def _both(
    start: Callable[[], Any], lane: DeviceLane, name: int, track: Following, hooks: Hooks
) -> Callable[[], Any]:  # fmt: skip
    """Stamp the host and the device."""

    def enter() -> None:
        start()
        try:
            if hooks.on and (now := track()) is not None:
                lane.mark(now, name)
        except Exception:
            hooks.failed()

    return enter


def watch_graphs(hooks: Hooks, wrapper: Any, tell: Callable[[int, int], None]) -> None:
    """Call `tell(code, padded size)` with what the runner's graph dispatcher returns, where there are graphs."""
    runner = getattr(getattr(wrapper, "worker", None), "model_runner", None)
    for holder in ("cudagraph_dispatcher", "cudagraph_manager"):
        dispatcher = getattr(runner, holder, None)
        if not callable(getattr(dispatcher, "dispatch", None)):
            continue
        if _mode(getattr(dispatcher, "cudagraph_mode", None)) == "NONE":
            hooks.found[f"{holder}.dispatch"] = True  # and it has only one answer
            return
        hooks.wrap(dispatcher, "dispatch", functools.partial(_dispatch, hooks, tell), f"{holder}.dispatch")
        return
    hooks.found["cudagraph_dispatcher.dispatch"] = False


def _mode(mode: Any) -> str:
    return str(getattr(mode, "name", mode))


def _dispatch(hooks: Hooks, tell: Callable[[int, int], None], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def dispatch(*args: Any, **more: Any) -> Any:
        result = original(*args, **more)
        if hooks.on:
            try:
                mode, found = result if isinstance(result, tuple) else (result.cg_mode, result)
                tell(_EAGER if _mode(mode) == "NONE" else _CAPTURED, int(found.num_tokens))
            except Exception:
                hooks.failed()
        return result

    return dispatch
