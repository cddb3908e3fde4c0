"""A batching manager: its thread's life, and the making of what runs the batches on it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import Any, Final

from stallbook.adapters.process import Process
from stallbook.adapters.transformers.engine import Engine

__all__ = ["install"]

_MANAGER: Final = "ContinuousBatchingManager"


def install(module: ModuleType, process: Process) -> Engine:
    """Hook the loop of a batching manager, and the making of what it runs."""
    engine, manager = Engine(process), getattr(module, _MANAGER, None)
    hooks = process.hooks
    if manager is not None:
        hooks.wrap(manager, "_run_generation_loop", functools.partial(_run_generation_loop, engine))
        hooks.wrap(manager, "_create_batch_processor", functools.partial(_create_batch_processor, engine))
        for name in ("register_result_handler", "get_result"):
            hooks.wrap(manager, name, getattr(engine.frontend, name))
    if not hooks.has(f"{_MANAGER}._run_generation_loop") or not hooks.has(f"{_MANAGER}._create_batch_processor"):
        print(f"stallbook: not recording: {process.engine} has no {_MANAGER} with a loop of its own", file=sys.stderr)
    return engine


def _run_generation_loop(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    """The thread's whole life."""

    @functools.wraps(original)
    def run_generation_loop(manager: Any, *args: Any, **more: Any) -> Any:
        mine = engine.hooks.on and not engine.thread and getattr(manager, "is_tp_driver", True)
        if mine:
            engine.thread = get_ident()
        try:
            return original(manager, *args, **more)
        finally:
            if mine:
                engine.ends()

    return run_generation_loop


def _create_batch_processor(engine: Engine, original: Callable[..., Any]) -> Callable[..., Any]:
    """What runs the batches stands."""

    @functools.wraps(original)
    def create_batch_processor(manager: Any, *args: Any, **more: Any) -> Any:
        result = original(manager, *args, **more)
        if engine.hooks.on and engine.thread == get_ident():
            try:
                engine.adopts(manager, result)
            except Exception:
                engine.hooks.failed()
        return result

    return create_batch_processor
