"""The detokenizer: collections, and how long it was at work between the scheduler and the tokenizer manager."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.process import Process

__all__ = ["Detokenizer", "install"]

_TOLD: Final = 64
"""So many batches, and what they took is written."""
_HOOK_NS: Final = 2_000


def install(module: ModuleType, process: Process) -> None:
    """Hook what makes text of tokens."""
    owner = getattr(module, "DetokenizerManager", None)
    name = "handle_batch_token_id_out"
    process.hooks.wrap(owner, name, Detokenizer(process).handled, f"DetokenizerManager.{name}")


class Detokenizer:
    """The hooks of one detokenizer."""

    def __init__(self, process: Process) -> None:
        self.process, self.hooks, self.clock = process, process.hooks, process.clock
        self.batches = self.busy_ns = 0

    def handled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A batch of tokens became text."""
        clock, hooks = self.clock, self.hooks

        @functools.wraps(original)
        def handle_batch_token_id_out(*args: Any, **more: Any) -> Any:
            t = clock()
            result = original(*args, **more)
            if hooks.on:
                try:
                    self.busy_ns += clock() - t
                    self.batches += 1
                    if self.batches % _TOLD == 1:
                        self.tell()
                except Exception:
                    hooks.failed()
            return result

        return handle_batch_token_id_out

    def tell(self) -> None:
        """Write what is known."""
        process = self.process
        if not process.role:
            process.become_frontend("detokenizer")
            process.told_hooks()
            atexit.register(self.tell)
        process.fact("detokenized", {"batches": self.batches, "busy_ns": self.busy_ns})
        if process.recorder is not None:
            process.recorder.spent(_TOLD * _HOOK_NS)
            process.recorder.flush()
