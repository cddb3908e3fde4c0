"""SGLang's scheduler as it is made: from then on it is hooked, if this process records it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stallbook.adapters.process import Process
from stallbook.adapters.sglang import config
from stallbook.adapters.sglang.engine import Engine

__all__ = ["install"]


def install(module: ModuleType, process: Process) -> None:
    """Hook the making of a scheduler: once it stands, it can be hooked itself.

    What the scheduler hands out bound methods of while it is made has to be hooked before.
    """
    found: list[Engine] = []

    def made(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init(self: Any, *args: Any, **more: Any) -> Any:
            result = original(self, *args, **more)
            try:
                if process.hooks.on and not process.role:
                    config.begin(self, process, lambda: found.append(Engine(self, process)))
            except Exception:
                process.hooks.failed()
            return result

        return init

    def handled(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def handle(self: Any, request: Any, *args: Any, **more: Any) -> Any:
            if not (found and process.hooks.on):
                return original(self, request, *args, **more)
            return found[0].handle(functools.partial(original, self, request, *args, **more), request)

        return handle

    def reset(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def reset_for_retract(request: Any, *args: Any, **more: Any) -> Any:
            if not (found and process.hooks.on):
                return original(request, *args, **more)
            return found[0].retract(functools.partial(original, request, *args, **more), request)

        return reset_for_retract

    for owner, name, make in (
        ("Scheduler", "__init__", made), ("Scheduler", "handle_generate_request", handled),
        ("Req", "reset_for_retract", reset),
    ):  # fmt: skip
        process.hooks.wrap(getattr(module, owner, None), name, make, f"{owner}.{name}")
