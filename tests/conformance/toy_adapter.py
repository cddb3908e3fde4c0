"""stallbook for the toy engine: `python toy_adapter.py` serves as `python toy_engine.py` does, and records."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from stallbook.adapters.hooks import Hooks
from stallbook.adapters.imports import when_imported
from stallbook.adapters.process import settle
from stallbook.record import Recorder


class Adapter:
    """What each hook does. `rec` is the log of this process, `handles` the requests that are alive."""

    def __init__(self, module: ModuleType, rec: Recorder, hooks: Hooks) -> None:
        self.rec, self.handles = rec, dict[str, int]()
        self.evicted, self.running = set[str](), set[str]()
        self.sched, self.decode, self.output = (rec.name(name) for name in ("sched", "decode", "output"))
        for name, before, after in (
            ("add", self.arrives, None), ("step", self.begins, self.ends), ("schedule", None, self.scheduled),
            ("forward", None, self.emits), ("preempt", self.evicts, None), ("finish", self.finishes, None),
        ):  # fmt: skip
            hooks.around(module.Engine, name, before, after)
        rec.fact("hooks", dict(hooks.found))  # the report says which were not found

    def arrives(self, engine: Any, request: Any) -> None:
        self.handles[request.name] = self.rec.arrive(request.name, request.prompt, request.limit)

    def begins(self, engine: Any) -> None:
        self.rec.begin()
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
        self.rec.end(decode_tokens=self.decoding) if batch else self.rec.drop()  # an idle turn of the loop


def register() -> None:
    """Record where the variable STALLBOOK says; without it, do nothing."""
    folder, hooks = settle(), Hooks()
    if folder is not None and hooks.on:
        rec = Recorder(folder, engine="toy 1.0")
        when_imported("toy_engine", lambda module: Adapter(module, rec, hooks))


if __name__ == "__main__":
    register()
    import toy_engine

    toy_engine.main()
