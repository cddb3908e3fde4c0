"""vLLM's own scopes of the model runner, through the factory that it keeps for profilers."""

from __future__ import annotations

import sys
from typing import Any, Final

from stallbook.adapters.hooks import Hooks
from stallbook.adapters.stamps import Scopes, Stamps
from stallbook.adapters.steps import Steps
from stallbook.record import WholeRecorder

__all__ = ["install", "take_over"]

_RUNNER: Final = "gpu_model_runner: "
STARTS: Final = (
    ("preprocess", "runner"), ("forward", "decode"), ("postprocess", "logits"), ("sample", "sample"),
    ("draft", "draft"), ("bookkeep", "runner"), ("eplb", "dispatch"),
)  # fmt: skip
"""What starts where a scope of the runner is entered. `eplb` follows upon `bookkeep` at once."""


def take_over(hooks: Hooks, stamps: Stamps, recorder: WholeRecorder, handoff: str) -> bool:
    """Stamp the scopes of the model runner from now on. False where this vLLM has no such factory, or it is in use."""
    label = "vllm.v1.utils._PROFILER_FUNC"
    hooks.found[label] = False
    utils = sys.modules.get("vllm.v1.utils")
    if utils is None or not hasattr(utils, "_PROFILER_FUNC") or not hasattr(utils, "record_function_or_nullcontext"):
        return False
    if utils._PROFILER_FUNC is not None and getattr(utils._PROFILER_FUNC, "__name__", "") != "nullcontext":
        return False
    table = Scopes()
    for scope, name in STARTS:
        start = stamps.stamp(recorder.name(handoff if name == "dispatch" else name))
        leave = stamps.stamp(recorder.name(handoff)) if scope == "postprocess" else None
        table[_RUNNER + scope] = table.scope(start, leave)
    utils._PROFILER_FUNC = table.__getitem__
    hooks.found[label] = True
    return True


def install(hooks: Hooks, stamps: Stamps, recorder: WholeRecorder, steps: Steps, worker: Any) -> None:
    """Of a worker inside the engine core: its scopes, and what its graph dispatcher returns."""
    take_over(hooks, stamps, recorder, "dispatch")
