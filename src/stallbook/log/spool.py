"""Reading a spool: the records of `stallbook.record.spool` into the columns of a `Draft`.

Python looks at each record once, to check it and to follow the batch; heads, marks and emissions then become columns
as whole arrays.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.errors import StallbookError
from stallbook.log.check import LIMIT
from stallbook.log.draft import Draft
from stallbook.log.spool_events import EVENTS, Context
from stallbook.log.spool_join import Join
from stallbook.log.spool_layout import COLUMNS, DELAY, END, HEAD, LAYOUT, WINDOW, Steps
from stallbook.log.spool_records import committed, spool_bytes
from stallbook.log.spool_v1 import upgraded
from stallbook.notes import Teller, teller
from stallbook.record import spool as f
from stallbook.run import BY_BUDGET, NEVER, Ints

__all__ = ["read_spool"]

_BROKEN: Final = (struct.error, ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError)
_STEPS: Final = frozenset(f.BODIES)
_EMPTY: Final = np.empty(0, dtype=np.int64)


def read_spool(path: Path, draft: Draft, process: str, owner: bool, join: Join) -> None:
    """Add what a spool holds to the draft. Only the owner's steps are the log's steps; what other processes add to
    them, and to its requests, goes through `join`.
    """
    data = spool_bytes(path)
    if not data:
        draft.notes["empty_spools"] += 1  # its process was killed before it wrote anything
        return
    reader, old = _Reader(draft, process, owner, join), data[6] == 1
    for at, kind, payload in committed(data, draft.notes):
        try:
            reader.take(kind, upgraded(kind, payload) if old and kind in _STEPS else payload)
        except _BROKEN:
            what = f"a record that makes no sense at byte {at}"
            raise StallbookError("bad-record", what, "the file was altered; record again", str(path)) from None
    try:
        reader.finish()
    except _BROKEN:
        raise StallbookError("bad-record", "records that make no sense", "record again", str(path)) from None
    join.ended(process, closed=data[-8:] != bytes(8))


class _Reader:
    """Follows the records of one spool."""

    def __init__(self, draft: Draft, process: str, owner: bool, join: Join) -> None:
        self.draft, self.process, self.owner, self.join = draft, process, owner, join
        self.context = Context(draft, process, join, owner)
        self.batch: set[int] = set()
        self.batch_array: Ints = _EMPTY
        self.changed = False
        self.last = -LIMIT
        self.steps = {kind: Steps() for kind in f.BODIES}
        self.emits: list[tuple[int, int, Ints, Ints | None]] = []  # step, stamp, handles, tokens
        self.members: list[tuple[int, Ints]] = []
        self.owners: dict[int, list[tuple[int, int]]] = {}
        self.windows: list[tuple[int, npt.NDArray[np.void]]] = []
        self.teller: Teller | None = None
        self.noted = 0

    def take(self, kind: int, payload: memoryview) -> None:
        """One record."""
        if kind in _STEPS:
            self._step(kind, payload)
        elif kind in EVENTS:
            EVENTS[kind](self.context, payload)
            if kind == f.ARRIVE and self.teller is not None:
                self.teller.arrived(f.R_ARRIVE.unpack_from(payload)[0])
        elif kind == f.NOTES:
            self._notes(payload)
        elif kind == f.NOTED:
            self.teller, self.noted = teller(json.loads(bytes(payload))), 0
            for handle in self.context.requests:
                self.teller.arrived(handle)
        elif kind == f.FACT:
            key, value = json.loads(bytes(payload))
            self.draft.facts[key if self.owner else f"{self.process}.{key}"] = value
        elif kind == f.STATE:
            self._books(
                refused=0, **dict(zip(("dropped", "errors", "self_ns"), f.R_STATE.unpack(payload), strict=True))
            )
        elif kind == f.REFUSED:
            self._books(refused=f.R_REFUSED.unpack(payload)[0])
        elif kind != f.HELLO:
            self.draft.notes["unknown_records"] += 1

    def _notes(self, payload: memoryview) -> None:
        """What an adapter's hooks saw: told as records. What makes no sense is counted, like a failure of a hook."""
        t, waited, number = f.R_NOTES.unpack_from(payload)
        lost, self.noted = number != self.noted + 1, number
        try:
            if self.teller is None:
                raise ValueError("nobody tells these notes")
            if lost:  # before these
                self.draft.notes["untold_notes"] += 1
                self.teller.lost()
            told = self.teller.tell(t, waited, np.frombuffer(payload, "<i8", offset=f.R_NOTES.size).tolist())
        except Exception:
            self.draft.notes["untold_notes"] += 1
            return
        for kind, record in told:
            self.take(kind, memoryview(record))

    def _books(self, **state: int) -> None:
        key = "recorder" if self.owner else f"{self.process}.recorder"
        self.draft.facts[key] = self.draft.facts.get(key, {}) | state

    def _number(self, step: int) -> int:
        """The id of a step: its own, or the next one where it does not rise. The records of a spool are in order."""
        if not self.last < step < LIMIT and self.owner:
            self.draft.notes["refused_values"] += 1
            step = self.last + 1
        self.last = step
        return step

    def _step(self, kind: int, payload: memoryview) -> None:
        layout, store = LAYOUT[kind], self.steps[kind]
        marks, _, flags, t0, step, _, emitted, _, _, _, _ = layout.unpack_from(payload)
        head, delay = layout.size, DELAY[kind]
        times = head + 8 * marks
        delays = times + (marks * delay.itemsize if delay else 0)
        ends = delays + END[kind].itemsize
        end = ends + marks
        if end > len(payload):
            raise ValueError("marks")
        step = self._number(step)
        store.ids.append(step)
        store.heads.append(payload[:head])
        store.times.append(payload[head:times])
        store.delays.append(payload[times:delays])
        store.ends.append(payload[delays:ends])
        store.names.append(payload[ends:end])
        pairs = members = _EMPTY
        if flags & f.HAS_TAIL:
            pairs, members = self._tail(step, payload[end:])
        if not self.owner:
            return
        if flags & f.EMITS:
            t = min(t0 + emitted, LIMIT)  # at the limit it is out of range, as beyond
            everyone = self._emit(step, t, bool(flags & f.EMITS_BATCH), pairs, members)
            members = members if flags & f.MEMBERS_EXACT else everyone
        if not flags & f.MEMBERS_UNKNOWN:
            self.members.append((step, members))

    def _tail(self, step: int, tail: memoryview) -> tuple[Ints, Ints]:
        """Apply the batch's changes and keep owners and windows; returns the emissions and the step's own members."""
        *lengths, windows = f.R_TAIL.unpack_from(tail)
        words = np.frombuffer(tail, "<u4", sum(lengths), f.R_TAIL.size).astype(np.int64)
        at = np.cumsum(lengths)
        changes, pairs, members, owners = words[: at[0]], words[at[0] : at[1]], words[at[1] : at[2]], words[at[2] :]
        for change in changes.tolist():
            (self.batch.discard if change & 1 else self.batch.add)(change >> 1)
            self.changed = True
        if len(owners):
            self.owners[step] = list(zip(owners[::2].tolist(), owners[1::2].tolist(), strict=True))
        if windows:
            start = f.R_TAIL.size + 4 * len(words)
            self.windows.append((step, np.frombuffer(tail, WINDOW, windows, start)))
        return pairs, members

    def _emit(self, step: int, t: int, everyone: bool, pairs: Ints, members: Ints) -> Ints:
        if self.changed:
            self.batch_array = np.array(sorted(self.batch), dtype=np.int64)
            self.changed = False
        batch = self.batch_array
        if everyone:
            self.emits.append((step, t, batch, None))
        if len(pairs):
            self.emits.append((step, t, pairs[::2], pairs[1::2]))
        if len(pairs) or len(members):
            return np.unique(np.concatenate((batch, pairs[::2], members)))
        return batch

    def finish(self) -> None:
        """Turn what was collected into columns."""
        for kind, store in self.steps.items():
            if store.heads:
                self._columns(kind, store)
        if self.windows:
            self._windows()
        self.context.finish()
        if not self.owner:
            return
        self._emissions()
        self._members()
        for (request, kind), t0 in self.context.holds.items():
            self.draft.add("holds", request=request, kind=kind, t0=t0, t1=NEVER)
        if self.context.restarts:
            self.draft.preemptions = self.context.evictions + self.context.restarts

    def _columns(self, kind: int, store: Steps) -> None:
        head = np.frombuffer(b"".join(store.heads), HEAD[kind])
        column = {name: head[name].astype(np.int64) for name in COLUMNS}
        column["step"] = np.array(store.ids, dtype=np.int64)
        column["t1"] = column["t0"] + column["dt"]
        self.join.alive(self.process, int(column["t1"].max()))
        column["cpu"] = column["delay"] = np.full(len(head), -1)
        if END[kind].itemsize:
            end = np.frombuffer(b"".join(store.ends), END[kind])
            column |= {name: end[name].astype(np.int64) for name in ("cpu", "delay")}
        name, each = np.frombuffer(b"".join(store.names), np.uint8), DELAY[kind]
        if len(name):
            delay = np.frombuffer(b"".join(store.delays), each).astype(np.int64) if each else None
            self._segments(column, name, np.frombuffer(b"".join(store.times), "<i8").astype(np.int64), delay)
        if not self.owner:
            self.join.told(column["step"], column["graph"], column["padded"])
            return
        if (column["kv"] >= 0).any():
            self.draft.records |= {"kv_tokens"}
        blocked = (column["flags"] >> f.BLOCKED_SHIFT) - 1
        self.draft.extend(
            "steps",
            {
                "id": column["step"], "t0": column["t0"], "t1": column["t1"], "graph": column["graph"],
                "padded": column["padded"], "decode_tokens": column["decode"], "prefill_tokens": column["prefill"],
                "kv_tokens": column["kv"], "cpu": column["cpu"], "run_delay": -1 if each else column["delay"],
                "blocked": np.where(blocked > BY_BUDGET, -1, blocked),
            },
            column["step"],
        )  # fmt: skip

    def _segments(
        self, column: dict[str, Ints], name: npt.NDArray[np.uint8], t: Ints, delays: Ints | None
    ) -> None:  # fmt: skip
        """Mark i starts segment i, unless it names none; the step's next mark, or the step's end, ends it."""
        count = column["marks"]
        row = np.repeat(np.arange(len(count)), count)
        first = np.cumsum(count) - count
        last = (first + count - 1)[count > 0]
        end, delay = np.roll(t, -1), np.full(len(t), -1)
        end[last] = column["t1"][count > 0]
        if delays is not None:
            delay = np.roll(delays, -1)
            delay[last] = column["delay"][count > 0]
        owner = np.full(len(t), -1)
        if self.owners:
            start = dict(zip(column["step"].tolist(), first.tolist(), strict=True))
            own = [(start[s] + at, h) for s, pairs in self.owners.items() if s in start for at, h in pairs]
            at, handle = np.array(own, dtype=np.int64).reshape(-1, 2).T
            owner[at] = self.context.rows(handle)
        names = np.array(self.context.names, dtype=np.int64)
        named = self._named(np.where(name == f.NO_NAME, -1, name.astype(np.int64)))
        step = column["step"][row[named]]
        found = {
            "step": step, "name": names[name[named]], "device": np.zeros_like(step), "t0": t[named], "t1": end[named],
            "run_delay": delay[named], "request": owner[named],
        }  # fmt: skip
        if self.owner:
            self.draft.extend("segments", found, step)
        else:
            self.join.worker(found, column["delay"][row[named]] if delays is None else None)

    def _named(self, name: Ints) -> Ints:
        """Rows with a name; one that was never given out is an engine's mistake, and counted."""
        known = name < len(self.context.names)
        if not known.all():
            self.draft.notes["refused_values"] += int(np.count_nonzero(~known))
        return np.flatnonzero(known & (name >= 0))

    def _windows(self) -> None:
        step = np.repeat([s for s, _ in self.windows], [len(w) for _, w in self.windows])
        window = np.concatenate([w for _, w in self.windows])
        request = window["request"].astype(np.int64)
        request = np.where(request < 0, -1, self.context.rows(np.maximum(request, 0)))
        names = np.array(self.context.names, dtype=np.int64)
        known = self._named(window["name"].astype(np.int64))
        step, window, request = step[known], window[known], request[known]
        column: dict[str, npt.ArrayLike] = {
            "step": step, "name": names[window["name"]], "device": window["device"], "t0": window["t0"],
            "t1": window["t1"], "run_delay": window["delay"], "request": request,
        }  # fmt: skip
        self.draft.extend("segments", column, step)

    def _emissions(self) -> None:
        if not self.emits:
            return
        count = [len(handles) for _, _, handles, _ in self.emits]
        step, t = (np.repeat(np.array([e[i] for e in self.emits], dtype=np.int64), count) for i in (0, 1))
        tokens = np.concatenate([np.ones(len(h), np.int64) if n is None else n for _, _, h, n in self.emits])
        request = self.context.rows(np.concatenate([handles for _, _, handles, _ in self.emits]))
        known = self._known(request)
        self.draft.extend(
            "emits", {"step": step[known], "t": t[known], "request": request[known], "tokens": tokens[known]},
            step[known],
        )  # fmt: skip

    def _members(self) -> None:
        if "members" not in self.draft.records or not self.members:
            return
        ids = np.array([step for step, _ in self.members], dtype=np.int64)
        step = np.repeat(ids, [len(handles) for _, handles in self.members])
        request = self.context.rows(np.concatenate([handles for _, handles in self.members]))
        known = self._known(request)
        self.draft.extend("members_known", {"step": ids}, ids)
        self.draft.extend("members", {"step": step[known], "request": request[known]}, step[known])

    def _known(self, request: Ints) -> npt.NDArray[np.bool_]:
        """Handles that no arrival gave out are an engine's mistake: left out, counted."""
        known: npt.NDArray[np.bool_] = request >= 0
        if not known.all():
            self.draft.notes["unknown_handles"] += int(np.count_nonzero(~known))
        return known
