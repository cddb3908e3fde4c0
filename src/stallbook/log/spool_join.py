"""Several processes' spools as one recording: what workers and frontends add to the engine's own.

A worker's segments are given to the engine's steps by number; what a graph dispatcher told it goes to the step's row. A
frontend's requests are the engine's by id: it knows when they came in, and when their tokens were handed out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stallbook.log.draft import Draft
from stallbook.run import Ints

__all__ = ["HANDOFF", "Came", "Join"]

HANDOFF = "handoff"
"""The hold of a request between its frontend and the engine."""


@dataclass(frozen=True)
class Came:
    """A request as a frontend saw it: when it came in, and when it was sent to the engine (the last hold's end)."""

    t: int
    prompt: int
    limit: int


@dataclass
class Join:
    """What the spools of one folder know of each other. Frontends are read first, then the owner, then workers."""

    draft: Draft
    came: dict[str, Came] = field(default_factory=dict)
    deliveries: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Request, time, tokens, boundary."""
    holds: list[tuple[str, str, int, int]] = field(default_factory=list)
    """Request, kind, start, end."""
    graph: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By step: graph code and padded size, where a worker knew."""

    last: dict[str, int] = field(default_factory=dict)
    """When each process was last known to be at work."""

    def alive(self, process: str, t: int) -> None:
        """A process was at work at that time."""
        self.last[process] = max(self.last.get(process, t), t)

    def ended(self, process: str, closed: bool) -> None:
        """A spool is read: was it closed, or did its process end without that?"""
        told = self.draft.facts.setdefault("processes", {})
        told[process] = {"closed": closed, "last_ns": self.last.get(process)}

    def arrival(self, name: str, t: int, prompt: int, limit: int) -> tuple[int, int, int]:
        """When a request arrived that the engine saw at `t`: at its frontend, if one recorded it."""
        came = self.came.get(name)
        if came is None or not came.t <= t:
            return t, prompt, limit
        return came.t, prompt if prompt >= 0 else came.prompt, limit if limit >= 0 else came.limit

    def finish(self, seen: dict[str, int]) -> None:
        """Add what frontends told of the requests that the engine saw (by id, and when); of others nothing."""
        draft, sent = self.draft, dict.fromkeys(self.came, 0)
        for name, kind, t0, t1 in self.holds:
            if name in seen and t1 <= seen[name]:
                draft.add("holds", request=draft.request(name), kind=draft.name(kind), t0=t0, t1=t1)
                sent[name] = max(sent.get(name, 0), t1)
        for name, t0 in sent.items():
            if t0 and name in seen and t0 < seen[name]:
                draft.add("holds", request=draft.request(name), kind=draft.name(HANDOFF), t0=t0, t1=seen[name])
        known = [row for row in self.deliveries if row[0] in seen]
        if known:
            names, t, tokens, boundary = zip(*known, strict=True)
            draft.extend(
                "deliveries",
                {"request": [draft.request(n) for n in names], "t": t, "tokens": tokens, "boundary": boundary},
            )  # fmt: skip

    def told(self, step: Ints, graph: Ints, padded: Ints) -> None:
        """What a worker's graph dispatcher returned for its steps."""
        for row in np.flatnonzero((graph > 0) | (padded >= 0)).tolist():
            self.graph[int(step[row])] = int(graph[row]), int(padded[row])

    def graphs(self) -> None:
        """Give the steps what workers knew of them."""
        if self.graph:
            self.draft.amend("steps", "id", {key: {"graph": g, "padded": p} for key, (g, p) in self.graph.items()})

    def worker(self, columns: dict[str, Ints], delay: Ints | None) -> None:
        """Add a worker's segments, within the steps that the engine committed and cut where they cross its own.

        delay: the run-queue delay of each one's step, where it is known for the step only: shared out by length.
        """
        if delay is not None:
            columns = columns | {"run_delay": _shared(columns, delay)}
        draft, steps, own = self.draft, self.draft.table("steps"), self.draft.table("segments")
        order = np.argsort(steps["id"], kind="stable")
        ids, t0, t1 = steps["id"][order], steps["t0"][order], steps["t1"][order]
        if not len(ids):
            return
        row = np.minimum(np.searchsorted(ids, columns["step"]), len(ids) - 1)
        known = ids[row] == columns["step"]
        if not known.all():
            draft.notes["unfinished_steps"] += len(np.unique(columns["step"][~known]))
        columns = {name: column[known] for name, column in columns.items()}
        row = row[known]
        columns["t0"], columns["t1"] = np.maximum(columns["t0"], t0[row]), np.minimum(columns["t1"], t1[row])
        keep = columns["t0"] < columns["t1"]
        columns, row = {name: column[keep] for name, column in columns.items()}, row[keep]
        cut = _cut(columns, row, _borders(ids, own))
        draft.extend("segments", cut, cut["step"])


def _shared(columns: dict[str, Ints], delay: Ints) -> Ints:
    """Each segment's share of its step's delay, by length."""
    length = columns["t1"] - columns["t0"]
    whole = dict.fromkeys(np.unique(columns["step"]).tolist(), 0)
    if not (delay > 0).any():
        return delay
    for step, ns in zip(columns["step"].tolist(), length.tolist(), strict=True):
        whole[step] += ns
    total = np.array([whole[step] for step in columns["step"].tolist()], dtype=np.int64)
    return np.where(delay > 0, delay * length // np.maximum(total, 1), delay)


def _borders(ids: Ints, own: dict[str, Ints]) -> Ints:
    """The borders of each step's own host segments, a row a step, filled up with times before all."""
    host = own["device"] != 1
    step = np.searchsorted(ids, np.concatenate((own["step"][host], own["step"][host])))
    t = np.concatenate((own["t0"][host], own["t1"][host]))
    order = np.argsort(step, kind="stable")
    step, t = step[order], t[order]
    first = np.searchsorted(step, np.arange(len(ids)))
    nth = np.arange(len(step)) - first[step]
    out = np.full((len(ids), int(nth.max(initial=0)) + 1), np.iinfo(np.int64).min)
    out[step, nth] = t
    return out


def _cut(columns: dict[str, Ints], row: Ints, borders: Ints) -> dict[str, Ints]:
    """Each segment in the pieces into which the borders of its step cut it."""
    t0, t1 = columns["t0"], columns["t1"]
    inside = (t0[:, None] < borders[row]) & (borders[row] < t1[:, None])
    crossed = np.flatnonzero(inside.any(axis=1))
    if not len(crossed):
        return columns
    whole = np.setdiff1d(np.arange(len(t0)), crossed)
    rows, starts, ends = [whole], [t0[whole]], [t1[whole]]
    for i in crossed.tolist():
        at = np.concatenate(([t0[i]], np.unique(borders[row[i]][inside[i]]), [t1[i]]))
        rows.append(np.full(len(at) - 1, i))
        starts.append(at[:-1])
        ends.append(at[1:])
    take = np.concatenate(rows)
    out = {name: column[take] for name, column in columns.items()}
    out["t0"], out["t1"] = np.concatenate(starts), np.concatenate(ends)
    length = np.maximum(t1[take] - t0[take], 1)
    share = out["run_delay"] * (out["t1"] - out["t0"]) // length
    out["run_delay"] = np.where(out["run_delay"] > 0, share, out["run_delay"])
    return out
