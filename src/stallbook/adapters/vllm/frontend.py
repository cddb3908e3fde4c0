"""The API server: when a request came in, when it went to the engine, when its tokens came back."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from stallbook.adapters import frontend
from stallbook.adapters.process import Process

__all__ = ["Frontend", "install"]

_COUNTERS: Final = {"vllm:num_preemptions_total": "preemptions", "vllm:generation_tokens_total": "generation_tokens"}


def install(module: ModuleType, process: Process) -> None:
    """Hook what keeps a frontend's requests: who goes to the engine, and what is handed out."""
    found = process.frontend = process.frontend or Frontend(process, counters)
    if (owner := getattr(module, "OutputProcessor", None)) is not None:
        process.hooks.wrap(owner, "__init__", found.made)
        process.hooks.wrap(owner, "add_request", found.added)
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
    """The hooks of one API server, which may serve several engines by one output processor."""

    def _forget(self) -> None:
        super()._forget()
        self.processor: Callable[[], object] | None = None
        self.held: dict[str, tuple[int, int]] = {}
        """Of requests whose tokens are held back until there are several (`--stream-interval`): how many were sent the
        last time, and how many wait."""

    def mine(self, processor: Any) -> bool:
        """Whether it is the first that got a request: the engine of another one is not recorded."""
        if self.processor is None:
            self.processor = weakref.ref(processor)
        return self.processor() is processor

    def made(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Another engine is being made, and will count anew: what the one before counted is read now."""

        @functools.wraps(original)
        def init(processor: Any, *args: Any, **more: Any) -> None:
            self.hooks.call(self.read)
            original(processor, *args, **more)

        return init

    def added(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A request was tokenized, and goes to the engine next, by the id that all processes know.

        Of one that asks for several answers, each is a request of its own from here on.
        """

        @functools.wraps(original)
        def add_request(processor: Any, request: Any, *args: Any, **more: Any) -> Any:
            result = original(processor, request, *args, **more)
            if self.hooks.on:
                try:
                    if self.mine(processor):
                        now, params = self.clock(), request.sampling_params
                        limit = params.max_tokens if params is not None and isinstance(params.max_tokens, int) else -1
                        prompt = len(request.prompt_token_ids or ()) or -1
                        self.arrived(request.request_id, self.since(request.arrival_time, now), now, prompt, limit)
                        self._holds_back(request.request_id, processor.request_states)
                        self.forget(processor.request_states)
                except Exception:
                    self.hooks.failed()
            return result

        return add_request

    def _holds_back(self, request: str, states: Mapping[str, Any]) -> None:
        state = states.get(request)
        if (
            getattr(state, "stream_interval", 1) > 1
            and getattr(getattr(state, "output_kind", None), "name", "") == "DELTA"
        ):
            self.held[request] = 0, 0
        if len(self.held) > 2 * len(states) + self.many:
            self.held = {one: what for one, what in self.held.items() if one in states}

    def _let_go(
        self, requests: list[str], tokens: list[int], states: Mapping[str, Any]
    ) -> tuple[list[str], list[int]]:  # fmt: skip
        """What of these tokens, and of those that were held back, is handed out now."""
        out: dict[str, int] = {}
        for request, count in zip(requests, tokens, strict=True):
            if request in self.held:
                sent, waiting = self.held.pop(request)
                state, count = states.get(request), count + waiting
                if state is not None:
                    still = state.sent_tokens_offset == sent
                    self.held[request] = state.sent_tokens_offset, count if still else 0
                    count = 0 if still else count
            if count:
                out[request] = count
        return list(out), list(out.values())

    def processed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Tokens came back from an engine, and were handed to those who wait for them."""
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        def process_outputs(processor: Any, outputs: Any, *args: Any, **more: Any) -> Any:
            result = original(processor, outputs, *args, **more)
            if hooks.on and outputs and self.mine(processor):
                try:
                    requests = [one.request_id for one in outputs]
                    tokens = [len(one.new_token_ids) for one in outputs]
                    if self.held:
                        requests, tokens = self._let_go(requests, tokens, processor.request_states)
                    self.handed(requests, tokens, clock())
                    if not processor.request_states:
                        self.rests()
                except Exception:
                    hooks.failed()
            return result

        return process_outputs
