"""The tokenizer manager: when a request came in, when it went to a scheduler, when its tokens came back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from stallbook.adapters import frontend
from stallbook.adapters.process import Process
from stallbook.adapters.sglang.engine import HEALTH

__all__ = ["Frontend", "install"]


def install(module: ModuleType, process: Process) -> None:
    """Hook what sends requests and what takes the answers."""
    owner = getattr(module, "TokenizerManager", None)
    found = Frontend(process)
    for name, make in (
        ("_send_one_request", found.sent), ("_send_batch_request", found.sent),
        ("_handle_batch_output", found.handled),
    ):  # fmt: skip
        process.hooks.wrap(owner, name, make, f"TokenizerManager.{name}")
    process.hooks.around(owner, "_handle_abort_req", after=found.aborted)


class Frontend(frontend.Frontend):
    """The hooks of one tokenizer manager.

    What SGLang counts comes with its answers: how often a request was retracted, and how many tokens it got.
    """

    def __init__(self, process: Process) -> None:
        self.told: dict[str, dict[str, int]] = {"preemptions": {}, "generation_tokens": {}}
        super().__init__(process, lambda: self.told)

    def sent(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Requests were tokenized, and go to a scheduler next."""

        @functools.wraps(original)
        async def send(manager: Any, asked: Any, *args: Any, **more: Any) -> Any:
            if self.hooks.on:
                try:
                    self.asked(asked if isinstance(asked, (list, tuple)) else (asked,))
                except Exception:
                    self.hooks.failed()
            return await original(manager, asked, *args, **more)

        return send

    def asked(self, requests: Iterable[Any]) -> None:
        """Note requests, each from when it came in to now."""
        now = self.clock()
        for one in requests:
            params = getattr(one, "sampling_params", None)
            if params is None or one.rid.startswith(HEALTH):
                continue
            created = getattr(getattr(one, "time_stats", None), "created_time", 0.0)
            limit = getattr(params, "max_new_tokens", None)
            came = int(created * 1e9)
            self.arrived(
                one.rid, came if 0 < came <= now else now, now, len(one.input_ids or ()) or -1,
                -1 if limit is None else limit,
            )  # fmt: skip

    def handled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Answers came back, and were handed to those who wait for them."""
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        async def handle_batch_output(manager: Any, output: Any, *args: Any, **more: Any) -> Any:
            result = await original(manager, output, *args, **more)
            if hooks.on and getattr(output, "output_ids", None):
                try:
                    t = clock()
                    got = [(rid, len(ids)) for rid, ids in zip(output.rids, output.output_ids, strict=True) if ids]
                    self.handed([rid for rid, _ in got], [count for _, count in got], t)
                    if any(output.finished_reasons):
                        self.finished(output)
                        if not manager.rid_to_state:
                            self.rests()
                except Exception:
                    hooks.failed()
            return result

        return handle_batch_output

    def aborted(self, result: Any, manager: Any, abort: Any) -> None:
        """A scheduler gave a request up, or never took it: no output says that it is done."""
        handle, recorder = self.process.handles.pop(abort.rid, None), self.process.recorder
        if handle is not None and recorder is not None:
            recorder.finish(handle)
            if not manager.rid_to_state:
                self.rests()

    def finished(self, output: Any) -> None:
        """Requests are done: take what SGLang counted of each."""
        ranks = getattr(output, "dp_ranks", None)
        handles, recorder = self.process.handles, self.process.recorder
        for i, (rid, reason) in enumerate(zip(output.rids, output.finished_reasons, strict=True)):
            if reason is None or (handle := handles.pop(rid, None)) is None:
                continue
            engine = str((ranks[i] if ranks else None) or 0)
            for name, counts in (
                ("preemptions", getattr(output, "retraction_counts", None)),
                ("generation_tokens", getattr(output, "completion_tokens", None)),
            ):
                if counts:
                    self.told[name][engine] = self.told[name].get(engine, 0) + counts[i]
            if recorder is not None:
                recorder.finish(handle)
