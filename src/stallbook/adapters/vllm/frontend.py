"""The API server: when a request came in, when it went to the engine, when its tokens came back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from stallbook.adapters import frontend
from stallbook.adapters.process import Process

__all__ = ["Frontend", "install"]

_COUNTERS: Final = {"vllm:num_preemptions_total": "preemptions", "vllm:generation_tokens_total": "generation_tokens"}


def install(module: ModuleType, process: Process) -> None:
    """Hook what takes requests and what hands out tokens, whichever of the two this module holds."""
    found = process.frontend = process.frontend or Frontend(process, counters)
    for holder in ("InputProcessor", "Processor"):
        if (owner := getattr(module, holder, None)) is not None and owner.__module__ == module.__name__:
            process.hooks.wrap(owner, "assign_request_id", found.assigned)
    if (owner := getattr(module, "OutputProcessor", None)) is not None:
        process.hooks.wrap(owner, "process_outputs", found.processed)


def counters() -> dict[str, dict[str, int]]:
    """vLLM's counters of preemptions and generated tokens, by engine, as this process has them."""
    registry = getattr(sys.modules.get("prometheus_client"), "REGISTRY", None)
    if registry is None:
        return {}
    found: dict[str, dict[str, int]] = {}
    for family in registry.restricted_registry(list(_COUNTERS)).collect():
        for sample in family.samples:
            if sample.name in _COUNTERS:
                engine = str(sample.labels.get("engine", "0"))
                found.setdefault(_COUNTERS[sample.name], {})[engine] = int(sample.value)
    return found


class Frontend(frontend.Frontend):
    """The hooks of one API server."""

    def assigned(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A request got the id by which all processes know it: it was tokenized, and goes to the engine next."""

        @functools.wraps(original)
        def assign_request_id(request: Any, *args: Any, **more: Any) -> Any:
            result = original(request, *args, **more)
            if self.hooks.on:
                try:
                    now, params = self.clock(), request.sampling_params
                    limit = params.max_tokens if params is not None and isinstance(params.max_tokens, int) else -1
                    prompt = len(request.prompt_token_ids or ()) or -1
                    self.arrived(request.request_id, self.since(request.arrival_time, now), now, prompt, limit)
                except Exception:
                    self.hooks.failed()
            return result

        return assign_request_id

    def processed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Tokens came back from an engine, and were handed to those who wait for them."""
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        def process_outputs(processor: Any, outputs: Any, *args: Any, **more: Any) -> Any:
            result = original(processor, outputs, *args, **more)
            if hooks.on and outputs:
                try:
                    requests = [one.request_id for one in outputs]
                    self.handed(requests, [len(one.new_token_ids) for one in outputs], clock())
                    if not processor.request_states:
                        self.rests()
                except Exception:
                    hooks.failed()
            return result

        return process_outputs
