"""How an engine's package is set to work: once a process, where a log is wanted, and without importing the engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module

__all__ = ["Plugin"]

VARIABLE = "STALLBOOK"
"""As in `stallbook.adapters.process`, which a process that records nothing does not load."""


class Plugin:
    """What stallbook needs to know of an engine beforehand.

    distributions: names under which it is installed. modules: for each of its modules that is hooked, the module of
    ours whose `install(module, process)` does so, once the engine has imported it.
    """

    def __init__(self, name: str, distributions: Sequence[str], modules: Mapping[str, str]) -> None:
        self.name, self.distributions, self.modules = name, distributions, modules
        self.registered = 0

    def register(self) -> None:
        """Install the hooks, once a process. Does nothing unless `STALLBOOK` names a log. Never raises."""
        if self.registered or not os.environ.get(VARIABLE):
            return
        self.registered = os.getpid()
        try:
            self._install()
        except Exception as error:
            import sys

            print(f"stallbook: not recording: {error!r}", file=sys.stderr)

    def version(self) -> str:
        """Which version of the engine is installed here."""
        from importlib import metadata

        for name in self.distributions:
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        return "unknown"

    def _install(self) -> None:
        from types import ModuleType

        from stallbook.adapters.hooks import Hooks
        from stallbook.adapters.imports import when_imported
        from stallbook.adapters.process import Process, settle

        folder, hooks = settle(), Hooks()
        if folder is None or not hooks.on:
            return
        process = Process(folder, f"{self.name} {self.version()}", hooks)
        for theirs, ours in self.modules.items():

            def then(module: ModuleType, ours: str = ours) -> None:
                try:
                    import_module(ours).install(module, process)
                except Exception:
                    hooks.failed()

            when_imported(theirs, then)
