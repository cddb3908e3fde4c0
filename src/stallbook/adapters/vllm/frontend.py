"""The API server: when a request came in, when it went to the engine, when its tokens came back."""

from __future__ import annotations

import asyncio
import atexit
import functools
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.process import Process

__all__ = ["Frontend", "install"]

_SAMPLED: Final = 32
_LONGEST_NS: Final = 100_000
"""A hook that took longer was interrupted."""
_TOKENIZE: Final = "tokenize"
_COUNTERS: Final = {"vllm:num_preemptions_total": "preemptions", "vllm:generation_tokens_total": "generation_tokens"}
_LATEST_NS: Final = 600 * 10**9
"""An arrival longer ago than this was not stamped by this server's clock."""


def install(module: ModuleType, process: Process) -> None:
    """Hook what takes requests and what hands out tokens, whichever of the two this module holds."""
    found = process.frontend = process.frontend or Frontend(process)
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


class Frontend:
    """The hooks of one API server."""

    def __init__(self, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self._forget()
        process.after_fork.append(self._forget)

    def _forget(self) -> None:
        self.requests: list[str] = []
        self.tokens: list[int] = []
        self.calls = 0
        self.due = False

    def assigned(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A request got the id by which all processes know it: it was tokenized, and goes to the engine next."""

        @functools.wraps(original)
        def assign_request_id(request: Any, *args: Any, **more: Any) -> Any:
            result = original(request, *args, **more)
            if self.hooks.on:
                try:
                    self.arrived(request)
                except Exception:
                    self.hooks.failed()
            return result

        return assign_request_id

    def arrived(self, request: Any) -> None:
        """Note a request, from when it came in to now."""
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
        now = self.clock()
        ago = time.time_ns() - int(request.arrival_time * 1e9)
        came = now - ago if 0 <= ago < _LATEST_NS else now
        params = request.sampling_params
        limit = params.max_tokens if params is not None and isinstance(params.max_tokens, int) else -1
        handle = process.arrived(request.request_id, len(request.prompt_token_ids or ()) or -1, limit, came)
        recorder.hold(handle, _TOKENIZE, came)
        recorder.release(handle, _TOKENIZE, now)

    def processed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Tokens came back from an engine, and were handed to those who wait for them."""
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        def process_outputs(processor: Any, outputs: Any, *args: Any, **more: Any) -> Any:
            result = original(processor, outputs, *args, **more)
            if hooks.on and outputs:
                try:
                    self.handed(outputs, clock())
                    if not processor.request_states:
                        self.rests()
                except Exception:
                    hooks.failed()
            return result

        return process_outputs

    def handed(self, outputs: Any, t: int) -> None:
        """Note a delivery to each of `outputs`."""
        recorder = self.process.recorder
        if recorder is None:
            return
        requests = [one.request_id for one in outputs]
        tokens = [len(one.new_token_ids) for one in outputs]
        if requests == self.requests and tokens == self.tokens:
            recorder.delivered_again(t)
        else:
            self._changed(recorder, requests, tokens, t)
        self.calls += 1
        if self.calls % _SAMPLED == 0:
            recorder.spent(min(self.clock() - t, _LONGEST_NS) * _SAMPLED)

    def rests(self) -> None:
        """No request is left: a good time to read vLLM's counters, once it has counted what was just handed out."""
        self.due = True
        try:
            asyncio.get_running_loop().call_soon(self.read)
        except RuntimeError:
            return  # an `LLM`: read when the next request comes, or at the end

    def read(self) -> None:
        """Note vLLM's own counters, so that a report can hold the log against them."""
        try:
            if self.due:
                self.due = False
                self.process.fact("counters", counters())
        except Exception:
            self.hooks.failed()

    def _changed(self, recorder: Any, requests: list[str], tokens: list[int], t: int) -> None:
        handles = self.process.handles
        known = [(handles[one], count) for one, count in zip(requests, tokens, strict=True) if one in handles]
        recorder.delivered([handle for handle, _ in known], [count for _, count in known], t)
        self.requests, self.tokens = requests, tokens
