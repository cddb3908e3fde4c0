"""The records of a spool that belong to no step: one function a kind, from a payload to a row of the draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from stallbook.log.draft import Draft
from stallbook.log.jsonl_events import printable
from stallbook.log.spool_join import Came, Join
from stallbook.record import spool as f
from stallbook.run import Ints

__all__ = ["EVENTS", "Context"]


class Context:
    """What the indices of one spool stand for in the draft."""

    def __init__(self, draft: Draft, process: str, join: Join, owner: bool = True) -> None:
        self.draft, self.process, self.join, self.owner = draft, process, join, owner
        self.names: list[int] = []
        self.requests: dict[int, int] = {}
        self.holds: dict[tuple[int, int], int] = {}
        """Open holds: (request, kind) to start."""
        self.restarts = self.evictions = 0
        self.arrivals: list[tuple[int, int, int, int]] = []
        self.prompts: dict[int, int] = {}
        """Lengths of prompts that were told after the arrival."""
        self.ids: dict[str, int] = {}
        """How often each request id has arrived."""
        self.arrived: dict[int, str] = {}
        """A frontend's requests, by handle."""
        self.boundary = 0
        self.last: list[tuple[int, int]] = []
        """The requests and tokens of the last DELIVERED."""

    def row(self, handle: int) -> int:
        """The request of a handle. One that no arrival gave out is an engine's mistake: -1, counted."""
        row = self.requests.get(handle, -1)
        if row < 0:
            self.draft.notes["unknown_handles"] += 1
        return row

    def rows(self, handles: Ints) -> Ints:
        """Request rows of handles, -1 for a handle that never arrived."""
        given = np.array(list(self.requests.items()), dtype=np.int64).reshape(-1, 2)
        handle, row = given[np.argsort(given[:, 0])].T
        found: Ints
        if not len(handle) or handle[-1] > 4 * len(handle):  # no recorder's: a table by handle could be of any size
            at = np.minimum(np.searchsorted(handle, handles), max(len(handle) - 1, 0))
            found = np.where(handle[at] == handles, row[at], -1) if len(handle) else np.full(len(handles), -1)
            return found
        table = np.full(int(handle[-1]) + 2, -1)
        table[handle] = row
        found = table[np.minimum(handles, len(table) - 1)]
        return found

    def unique(self, name: str) -> str:
        """The id, or for one that came before, `ID#2`, `ID#3`, ...: two requests are never taken for one."""
        count = self.ids.get(name, 0)
        if not count:
            self.ids[name] = 1
            return name
        self.draft.notes["refused_values"] += 1
        while (other := f"{name}#{count + 1}") in self.ids:
            count += 1
        self.ids[name], self.ids[other] = count + 1, 1
        return other

    def finish(self) -> None:
        """Add the arrivals, with what was told of them later."""
        names, seen = self.draft.request_names, {}
        for row, t, prompt, limit in self.arrivals:
            seen[names[row]] = t
            t, prompt, limit = self.join.arrival(names[row], t, self.prompts.get(row, prompt), limit)
            self.draft.add("arrivals", request=row, t=t, prompt_tokens=prompt, max_tokens=limit)
        if self.owner:
            self.join.finish(seen)

    def frontend(self, handle: int) -> str:
        """The id of a frontend's request; empty, and counted, where no arrival gave out the handle."""
        name = self.arrived.get(handle, "")
        if not name:
            self.draft.notes["unknown_handles"] += 1
        return name


def _name(c: Context, payload: memoryview) -> None:
    (index,) = f.R_NAME.unpack_from(payload)
    if index == len(c.names):  # a recorder out of indices reuses its last one
        c.names.append(c.draft.name(printable(str(payload[f.R_NAME.size :], "utf-8", "replace"))))


def _pause(c: Context, payload: memoryview) -> None:
    t0, t1, generation, process = f.R_PAUSE.unpack(payload)
    name = c.draft.name(c.process) if process < 0 else c.names[process]
    c.draft.add("pauses", t0=t0, t1=t1, generation=generation, process=name)


def _arrive(c: Context, payload: memoryview) -> None:
    handle, t, prompt, limit = f.R_ARRIVE.unpack_from(payload)
    name = c.unique(printable(str(payload[f.R_ARRIVE.size :], "utf-8", "replace")))
    if not c.owner:
        c.arrived[handle] = name
        c.join.came[name] = Came(t, prompt, limit)
        return
    row = c.requests[handle] = c.draft.request(name)
    c.arrivals.append((row, t, prompt, limit))


def _prompt(c: Context, payload: memoryview) -> None:
    handle, tokens = f.R_PROMPT.unpack(payload)
    if c.owner and (row := c.row(handle)) >= 0:
        c.prompts[row] = tokens


def _stamped(table: str) -> Callable[[Context, memoryview], None]:
    def add(c: Context, payload: memoryview) -> None:
        handle, t = f.R_REQUEST.unpack(payload)
        if c.owner and (row := c.row(handle)) >= 0:
            c.draft.add(table, request=row, t=t)

    return add


def _evict(c: Context, payload: memoryview) -> None:
    handle, t, lost, recompute = f.R_EVICT.unpack(payload)
    if c.owner and (row := c.row(handle)) >= 0:
        c.evictions += 1
        c.draft.add("evicts", request=row, t=t, recompute=recompute, lost_tokens=lost)


def _hold(c: Context, payload: memoryview) -> None:
    handle, t, kind = f.R_HOLD.unpack(payload)
    if not c.owner:
        c.holds.setdefault((handle, c.names[kind]), t)
    elif (row := c.row(handle)) >= 0:
        key = (row, c.names[kind])
        if key in c.holds:
            c.draft.notes["repeated_holds"] += 1
        c.holds.setdefault(key, t)


def _release(c: Context, payload: memoryview) -> None:
    handle, t, kind = f.R_HOLD.unpack(payload)
    if not c.owner:
        start = c.holds.pop((handle, c.names[kind]), None)
        if start is not None and (name := c.frontend(handle)):
            c.join.holds.append((name, c.draft.names[c.names[kind]], start, t))
        return
    if (row := c.row(handle)) < 0:
        return
    start = c.holds.pop((row, c.names[kind]), None)
    if start is None:
        c.draft.notes["releases_of_nothing"] += 1
    else:
        c.draft.add("holds", request=row, kind=c.names[kind], t0=start, t1=t)


def _deliver(c: Context, payload: memoryview) -> None:
    handle, t, tokens, boundary = f.R_DELIVER.unpack(payload)
    _handed(c, [(handle, tokens)], t, boundary)


def _handed(c: Context, pairs: list[tuple[int, int]], t: int, boundary: int) -> None:
    c.join.alive(c.process, t)
    for handle, tokens in pairs:
        if not c.owner:
            if name := c.frontend(handle):
                c.join.deliveries.append((name, t, tokens, boundary))
        elif (row := c.row(handle)) >= 0:
            c.draft.add("deliveries", request=row, t=t, tokens=tokens, boundary=boundary)


def _delivered(c: Context, payload: memoryview) -> None:
    t, boundary = f.R_DELIVERED.unpack_from(payload)
    words = payload[f.R_DELIVERED.size :].cast("I").tolist()
    c.last = list(zip(words[::2], words[1::2], strict=True))
    c.boundary = boundary
    _handed(c, c.last, t, boundary)


def _again(c: Context, payload: memoryview) -> None:
    (t,) = f.R_AGAIN.unpack(payload)
    _handed(c, c.last, t, c.boundary)


def _probe(c: Context, payload: memoryview) -> None:
    t, ns = f.R_PROBE.unpack(payload)
    c.draft.add("probes", t=t, ns=ns)


def _restart(c: Context, _payload: memoryview) -> None:
    c.restarts += 1


EVENTS: Final[Mapping[int, Callable[[Context, memoryview], None]]] = {
    f.NAME: _name, f.PAUSE: _pause, f.ARRIVE: _arrive, f.ADMIT: _stamped("admits"), f.FINISH: _stamped("finishes"),
    f.READMIT: _stamped("readmits"), f.EVICT: _evict, f.HOLD: _hold, f.RELEASE: _release, f.DELIVER: _deliver,
    f.PROBE: _probe, f.RESTART: _restart, f.PROMPT: _prompt,
    f.DELIVERED: _delivered, f.DELIVERED_AGAIN: _again,
}  # fmt: skip
