"""Hugging Face transformers' continuous batching, unmodified: hooks on its generation thread, found by feature.

It loads no plugins: `stallbook attach -- COMMAND` and `stallbook.attach()` call `register`. Nothing of it is imported
here; the hooks wait until the program imports it.
"""

from __future__ import annotations

from stallbook.adapters.plugin import Plugin

__all__ = ["PLUGIN", "register"]

_SERVER = "transformers.cli.serving"
_FRONTEND = "stallbook.adapters.transformers.frontend"

PLUGIN = Plugin(
    "transformers", ("transformers",),
    {
        "transformers.generation.continuous_batching.continuous_api": "stallbook.adapters.transformers.manager",
        f"{_SERVER}.completion": _FRONTEND, f"{_SERVER}.chat_completion": _FRONTEND, f"{_SERVER}.response": _FRONTEND,
    },
)  # fmt: skip


def register() -> None:
    """Install the hooks, once a process. Never raises."""
    PLUGIN.register()
