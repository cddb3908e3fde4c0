"""stallbook for the toy engine: `python toy_adapter.py` serves as `python toy_engine.py` does, and records."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from stallbook.adapters.hooks import Hooks
from stallbook.adapters.imports import when_imported
from stallbook.adapters.process import settle
from stallbook.record import Recorder


class Adapter:
    """What each hook does. `rec` is the log of this process, `handles` the requests that are alive."""

    def __init__(self, module: ModuleType, folder: Path, hooks: Hooks) -> None:
        self.rec, self.handles = Recorder(folder, engine="toy 1.0"), dict[str, int]()
        self.last: int | None = None  # when the step before this one ended, if the loop went round at once
        self.evicted, self.running = set[str](), set[str]()
        self.sched, self.decode, self.output = (self.rec.name(name) for name in ("sched", "decode", "output"))
        for name, before, after in (
            ("add", self.arrives, None), ("step", self.begins, self.ends), ("schedule", None, self.scheduled),
            ("forward", None, self.emits), ("preempt", self.evicts, None), ("finish", self.finishes, None),
        ):  # fmt: skip
            hooks.around(module.Engine, name, before, after)
        self.rec.fact("hooks", dict(hooks.found))  # the report says which were not found
        hooks.tell = self.rec.fact  # and whether they were switched off

    def arrives(self, engine: Any, request: Any) -> None:
        self.handles[request.name] = self.rec.arrive(request.name, request.prompt, request.limit)

    def begins(self, engine: Any) -> None:
        self.rec.begin(t=self.last)
        self.rec.enter(self.sched)

    def scheduled(self, batch: Any, engine: Any) -> None:
        self.decoding = len(self.running)
        for request, tokens in batch:
            if request.name not in self.running:
                handle = self.handles[request.name]
                self.rec.readmit(handle) if request.name in self.evicted else self.rec.admit(handle)
                self.rec.prefill(tokens)
                self.rec.join(handle)  # this forward pass computes its prompt, and gives a token
                self.evicted.discard(request.name)
                self.running.add(request.name)
        self.rec.enter(self.decode)

    def emits(self, result: Any, engine: Any, batch: Any) -> None:
        self.rec.emit()  # one token for each of the batch, as the forward pass returns
        self.rec.enter(self.output)

    def evicts(self, engine: Any, request: Any) -> None:
        self.rec.evict(self.handles[request.name], recompute=True, lost_tokens=request.length)
        self.running.discard(request.name)
        self.evicted.add(request.name)

    def finishes(self, engine: Any, request: Any) -> None:
        self.rec.finish(self.handles.pop(request.name))
        self.running.discard(request.name)

    def ends(self, batch: Any, engine: Any) -> None:
        self.last = self.rec.end(decode_tokens=self.decoding) if batch else self.rec.drop()  # an idle turn


def register() -> None:
    """Record where the variable STALLBOOK says; without it, do nothing."""
    folder, hooks = settle(), Hooks()
    if folder is not None and hooks.on:
        when_imported("toy_engine", lambda module: hooks.call(Adapter, module, folder, hooks))


if __name__ == "__main__":
    register()
    import toy_engine

    toy_engine.main()
