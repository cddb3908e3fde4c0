"""This process's part of the log: which folder, which role, and what a fork changes.

The variable `STALLBOOK` names the log. The first process of a server settles the folder, so that a second server does
not write into the first one's log, and hands it to its children in the environment. A process gets its role, and opens
its spool, at the first hooked call; a forked child starts without one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from stallbook.adapters.hooks import Hooks
from stallbook.record import WholeRecorder, manifest
from stallbook.record.counters import available
from stallbook.record.spool import spool_name

__all__ = ["FOLDER", "SERVER", "VARIABLE", "Process", "settle"]

VARIABLE: Final = "STALLBOOK"
FOLDER: Final = "STALLBOOK_FOLDER"
"""Where the children of the first process find the folder that it settled on."""
SERVER: Final = "STALLBOOK_SERVER"
"""Tells this server's processes from those of another that started at the same moment with the same `STALLBOOK`."""
_MOST_FRONTENDS: Final = 256
_OTHER: Final = f"{{}} holds the log of another engine; each needs a name of its own in {VARIABLE}"
_RECORDS: Final = ("segments", "gc", "evictions", "graph", "members", "os")


def settle() -> Path | None:
    """The folder of this server's log; None where no log is wanted."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return None
    if known := os.environ.get(FOLDER):
        return Path(known)
    first = path = Path(wanted).absolute()
    number = 2
    with contextlib.suppress(OSError):
        while path.exists() and (not path.is_dir() or any(path.iterdir())):
            path = first.with_name(f"{first.stem}-{number}{first.suffix}")
            number += 1
    if path != first:
        print(f"stallbook: {first} exists, so this recording goes to {path}", file=sys.stderr)
    os.environ[FOLDER] = str(path)
    os.environ.setdefault(SERVER, f"{os.getpid()}-{time.time_ns()}")
    return path


class Process:
    """What this process records, and as what. One of a kind in a process; `role` is "" until a hook knows better."""

    def __init__(
        self, folder: Path, engine: str, hooks: Hooks, clock: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self.folder, self.engine, self.hooks, self.clock = folder, engine, hooks, clock
        self.server = os.environ.get(SERVER, "")
        self.role = ""
        self.frontend: Any = None
        """The hooks of its frontend, which several modules may share."""
        self.undo: list[Callable[[], None]] = []
        """Takes back the hooks of a part that turns out to belong to another role."""
        self.recorder: WholeRecorder | None = None
        self.handles: dict[str, int] = {}
        """Handles of the requests that are alive, by the id that all processes know."""
        self.after_fork: list[Callable[[], None]] = []
        hooks.tell = self.fact
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.role, self.recorder = "", None
        self.undo.clear()
        self.handles.clear()
        with contextlib.suppress(Exception):
            for then in self.after_fork:
                then()

    def become_engine(
        self, index: int, config: Mapping[str, Any], os_counters: str, lacking: Collection[str] = (), **facts: Any
    ) -> None:
        """This process runs an engine loop. The first engine's log is the folder; of others, `NAME.dp1.stall`, ...

        lacking: what this log cannot record, for want of a hook.
        """
        if self.role:
            return
        if index:
            facts["frontends"] = self.folder.name
            self.folder = self.folder.with_name(f"{self.folder.stem}.dp{index}{self.folder.suffix}")
        records = [one for one in _RECORDS if one not in lacking and (one != "os" or available())]
        self._open("engine", config=config, records=records, os_counters=os_counters, extra={"server": self.server})
        for key, value in facts.items():
            self.fact(key, value)

    def one_more(self) -> None:
        """This process has made another engine, while it is the one that it was."""
        print(f"stallbook: an engine is not recorded: {_OTHER.format(self.folder)}", file=sys.stderr)

    def become_worker(self, rank: int, index: int = 0) -> None:
        """This process runs the forward pass for an engine in another one."""
        if not self.role:
            if index:
                self.folder = self.folder.with_name(f"{self.folder.stem}.dp{index}{self.folder.suffix}")
            self._open(f"worker:{rank}", os_counters="step")

    def become_frontend(self, role: str = "api") -> None:
        """This process takes requests and hands out tokens. It may be the engine's, too.

        role: of one that does neither, but stands between the engine and those who wait: how the log is to call it.
        """
        if self.role:
            return
        for number in range(_MOST_FRONTENDS):
            if not self._taken(f"{role}:{number}") and self._open(f"{role}:{number}", os_counters="step", one_of=True):
                return
        self.role = role
        self._stop(f"{self.folder} holds the logs of {_MOST_FRONTENDS} such processes already")

    def _of_another_server(self) -> bool:
        """Whether the engine whose log this is belongs to another server."""
        try:
            told = json.loads((self.folder / manifest.NAME).read_bytes()).get("server")
        except (OSError, ValueError, AttributeError):
            return False
        return bool(told and self.server and told != self.server)

    def _taken(self, role: str) -> bool:
        """Whether another process has a spool of that name."""
        return (self.folder / spool_name(role)).exists()

    def _open(self, role: str, *, one_of: bool = False, **more: Any) -> bool:
        """Open this process's spool. False if it is `one_of` several, and another process was quicker."""
        if self._of_another_server():
            self.role = role
            self._stop(_OTHER.format(self.folder))
            return True
        try:
            self.recorder = WholeRecorder(
                self.folder, engine=self.engine, process=role, clock=self.clock, strict=True, **more
            )  # fmt: skip
        except Exception as error:
            if isinstance(error, FileExistsError) and self._taken(role):
                if one_of:
                    return False
                self._stop(_OTHER.format(self.folder))
            else:
                self._stop(f"cannot write {self.folder}: {getattr(error, 'strerror', None) or error}")
        self.role = role
        if self.recorder is not None and not self.recorder.on:
            self.hooks.on = False
        return True

    def _stop(self, why: str) -> None:
        """This process records nothing, and the engine goes on."""
        self.hooks.on = False
        print(f"stallbook: recording stopped: {why}", file=sys.stderr)

    def fact(self, key: str, value: object) -> None:
        """Note something about this process."""
        if self.recorder is not None:
            self.recorder.fact(key, value)

    def told_hooks(self) -> None:
        """Note which hooks were found."""
        self.fact("hooks", dict(self.hooks.found))

    def arrived(self, request: str, prompt: int, limit: int, t: int) -> int:
        """A request came in; returns its handle. -1 where nothing is recorded."""
        if self.recorder is None:
            return -1
        handle = self.handles.get(request)
        if handle is None:
            handle = self.handles[request] = self.recorder.arrive(request, prompt, limit, t)
        return handle
