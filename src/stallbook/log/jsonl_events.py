"""The events of the interchange format: which fields each has, and how a batch of them becomes columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, cast

import numpy as np

from stallbook.errors import StallbookError
from stallbook.log.draft import TABLES, Draft
from stallbook.run import (
    BY_BUDGET,
    BY_KV,
    BY_SEQS,
    CAPTURED,
    EAGER,
    NEVER,
    NO_GRAPH,
    NOT_BLOCKED,
    Ints,
)  # fmt: skip

__all__ = ["BLOCKED", "BOUNDARY", "EVENTS", "GRAPH", "LANE", "MODE", "Batch", "Event", "printable", "text"]

GRAPH: Final = {"none": NO_GRAPH, "captured": CAPTURED, "eager": EAGER}
BLOCKED: Final = {"none": NOT_BLOCKED, "kv": BY_KV, "seqs": BY_SEQS, "budget": BY_BUDGET}
LANE: Final = {"host": 0, "device": 1}
MODE: Final = {"swap": 0, "recompute": 1}
BOUNDARY: Final = {"frontend": 0, "client": 1}

_REQUIRED = "required"
_FLUSH: Final = 1 << 20
"""Bytes of lines after which a batch becomes columns: parsed objects take many times the room of columns."""


@dataclass(frozen=True)
class _Field:
    """A field of an event: the column it fills, what stands for absence (or `_REQUIRED`), and its words, if words."""

    column: str
    absent: int | str
    words: Mapping[str, int] | None = None
    intern: str = ""
    """`request` or `name`: a string, interned; `absent` may then be a string too."""


@dataclass(frozen=True)
class Event:
    """What an `e` fills: a table, from `fields`; and the field that holds many rows at once, if any."""

    table: str
    fields: Mapping[str, _Field]
    many: str = ""


def _ints(required: str, optional: str = "") -> dict[str, _Field]:
    fields = {name: _Field(name, _REQUIRED) for name in required.split()}
    for name in optional.split():
        fields[name] = _Field(name.removesuffix("_ns"), -1)
    return fields


_WHO = {"request": _Field("request", _REQUIRED, intern="request")}

EVENTS: Final[Mapping[str, Event]] = {
    "arrive": Event("arrivals", _WHO | {"t": _Field("t", -(2**63))} | _ints("", "prompt_tokens max_tokens")),
    "admit": Event("admits", _WHO | _ints("t")),
    "finish": Event("finishes", _WHO | _ints("t")),
    "step": Event(
        "steps",
        _ints("id t0 t1", "padded decode_tokens prefill_tokens kv_tokens run_delay_ns cpu_ns")
        | {"graph": _Field("graph", NO_GRAPH, GRAPH), "blocked": _Field("blocked", -1, BLOCKED)},
        many="members",
    ),
    "segment": Event(
        "segments",
        _ints("step t0 t1", "run_delay_ns")
        | {
            "name": _Field("name", _REQUIRED, intern="name"),
            "lane": _Field("device", 0, LANE),
            "request": _Field("request", -1, intern="request"),
        },
    ),
    "gc": Event(
        "pauses", _ints("t0 t1", "generation") | {"process": _Field("process", "engine", intern="name")}
    ),
    "emit": Event("emits", _ints("step t"), many="tokens"),
    "evict": Event("evicts", _WHO | _ints("t", "lost_tokens") | {"mode": _Field("recompute", -1, MODE)}),
    "readmit": Event("readmits", _WHO | _ints("t")),
    "hold": Event(
        "holds", _WHO | _ints("t0") | {"kind": _Field("kind", _REQUIRED, intern="name"), "t1": _Field("t1", NEVER)}
    ),
    "deliver": Event("deliveries", _WHO | _ints("t tokens") | {"boundary": _Field("boundary", _REQUIRED, BOUNDARY)}),
    "probe": Event("probes", {"t": _Field("t", _REQUIRED), "ns": _Field("ns", _REQUIRED)}),
}  # fmt: skip


def text(value: object) -> str:
    """A name that can be printed: a string without control or broken characters; else ValueError."""
    if type(value) is not str:
        raise ValueError(f"{value!r:.40} is not a string")
    if not value:
        raise ValueError("an empty string")
    if any(ord(char) < 32 or 127 <= ord(char) < 160 or 0xD800 <= ord(char) < 0xE000 for char in value):
        raise ValueError(f"{value!r:.40} holds control characters")
    return value


def printable(value: str) -> str:
    """A name that `text` takes: what it would refuse is written by number."""
    try:
        return text(value)
    except ValueError:
        return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in value) or "(empty)"


@dataclass
class Batch:
    """Parsed events of one kind, waiting to become columns together: those that have the same fields side by side."""

    draft: Draft
    event: str
    spec: Event
    size: int = 0
    groups: dict[tuple[str, ...], tuple[list[tuple[Any, ...]], list[int]]] = field(default_factory=dict)

    def add(self, row: dict[str, Any], line: int, size: int) -> None:
        """Takes one event, told on a line of so many bytes."""
        layout = tuple(row)
        group = self.groups.get(layout)
        if group is None:
            group = self.groups[layout] = ([], [])
        group[0].append(tuple(row.values()))
        group[1].append(line)
        self.size += size
        if self.size >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Moves what waits into the draft."""
        for layout, (rows, lines) in self.groups.items():
            given = dict(zip(layout, zip(*rows, strict=True), strict=True))
            _Group(self.draft, self.event, self.spec, given, lines).move()
            unknown = given.keys() - {"e", self.spec.many, *self.spec.fields}
            if unknown:
                self.draft.notes["unknown_fields"] += len(unknown) * len(lines)
        self.groups, self.size = {}, 0


@dataclass
class _Group:
    """Events of one kind with the same fields: `given` holds each field of all of them."""

    draft: Draft
    event: str
    spec: Event
    given: Mapping[str, Sequence[Any]]
    lines: list[int]

    def move(self) -> None:
        """Adds them to the draft; the first wrong field raises `StallbookError`."""
        columns = {field.column: self._column(key, field) for key, field in self.spec.fields.items()}
        if self.event == "emit":
            self._emit(columns)
            return
        if self.event == "step":
            self._members(columns["id"])
        self.draft.extend(self.spec.table, columns, self.lines)

    def _error(self, row: int, what: str, remedy: str = "see the interchange format") -> StallbookError:
        return StallbookError("field", f"{self.event}: {what}", remedy, f"{self.draft.path}:{self.lines[row]}")

    def _column(self, key: str, field: _Field) -> Ints:
        values = self.given.get(key)
        absent = None if field.absent == _REQUIRED else field.absent
        if values is None:
            values = (None,) * len(self.lines)
        if field.intern:
            intern = self.draft.request if field.intern == "request" else self.draft.name
            return self._interned(key, values, absent, intern)
        if field.words is not None:
            return self._words(key, values, absent, field.words)
        kind = TABLES[self.spec.table][field.column].kind
        return self._ints(key, values, absent, "count" in kind)

    def _ints(self, key: str, values: Sequence[Any], absent: object, count: bool, rows: Ints | None = None) -> Ints:
        kinds = set(map(type, values))
        if not kinds <= ({int} if absent is None else {int, type(None)}):
            self._blame(key, values, absent, rows)
        given = values if type(None) not in kinds else [0 if value is None else value for value in values]
        try:
            column = np.array(given, dtype=np.int64)
        except OverflowError:
            row = next(i for i, value in enumerate(given) if not -(2**63) <= value < 2**63)
            raise self._error(row if rows is None else rows[row], f"{key} is out of range") from None
        if count and len(column) and column.min() < 0:
            row = int(np.argmax(column < 0))
            raise self._error(row if rows is None else rows[row], f"{key} = {column[row]} is negative")
        if given is not values:
            column[[value is None for value in values]] = cast(int, absent)
        return column

    def _blame(self, key: str, values: Sequence[Any], absent: object, rows: Ints | None) -> None:
        for i, value in enumerate(values):
            if type(value) is not int and not (value is None and absent is not None):
                row = i if rows is None else int(rows[i])
                what = f"{key} is missing" if value is None else f"{key} = {value!r:.40} is not an integer"
                raise self._error(row, what, "times and counts are whole numbers")

    def _words(self, key: str, values: Sequence[Any], absent: object, words: Mapping[str, int]) -> Ints:
        known: dict[Any, Any] = dict(words) if absent is None else {None: absent, **words}
        try:
            return np.array(list(map(known.__getitem__, values)), dtype=np.int64)
        except (KeyError, TypeError):
            row = next(i for i, value in enumerate(values) if not _in(value, known))
            what = f"{key} is missing" if values[row] is None else f"{key} = {values[row]!r:.40} is unknown"
            raise self._error(row, what, f"write one of {', '.join(words)}") from None

    def _interned(
        self, key: str, values: Sequence[Any], absent: object, intern: Callable[[str], int], rows: Ints | None = None
    ) -> Ints:
        seen: dict[Any, int] = {}
        try:
            for value in dict.fromkeys(values):
                if value is None and absent is not None:
                    seen[value] = absent if isinstance(absent, int) else intern(str(absent))
                else:
                    seen[value] = intern(text(value))
        except (ValueError, TypeError):
            self._blame_text(key, values, absent, rows)
        return np.array(list(map(seen.__getitem__, values)), dtype=np.int64)

    def _blame_text(self, key: str, values: Sequence[Any], absent: object, rows: Ints | None) -> None:
        for i, value in enumerate(values):
            try:
                if not (value is None and absent is not None):
                    text(value)
            except ValueError as error:
                what = f"{key} is missing" if value is None else f"{key}: {error}"
                row = i if rows is None else int(rows[i])
                raise self._error(row, what, "write a short, printable string") from None

    def _many(self, kind: type, what: str) -> tuple[list[Any], Ints]:
        """The values of the field that holds many rows, and which events have it."""
        key = self.spec.many
        values = self.given.get(key, (None,) * len(self.lines))
        for row, value in enumerate(values):
            if type(value) is not kind and not (value is None and kind is list):
                raise self._error(row, f"{key} is missing" if value is None else f"{key} is not {what}")
        here = np.array([i for i, value in enumerate(values) if value is not None], dtype=np.int64)
        return [value for value in values if value is not None], here

    def _emit(self, columns: dict[str, Ints]) -> None:
        tokens, _ = self._many(dict, "an object of tokens by request")
        sizes = np.array([len(given) for given in tokens], dtype=np.int64)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        who = list(chain.from_iterable(tokens))
        counts = list(chain.from_iterable(given.values() for given in tokens))
        self.draft.notes["empty_emissions"] += int(np.count_nonzero(sizes == 0))
        self.draft.extend(
            "emits",
            {
                "step": columns["step"][rows],
                "t": columns["t"][rows],
                "request": self._interned("tokens", who, None, self.draft.request, rows),
                "tokens": self._ints("tokens", counts, None, True, rows),
            },
            np.array(self.lines)[rows],
        )

    def _members(self, ids: Ints) -> None:
        members, here = self._many(list, "a list of requests")
        rows = here[np.repeat(np.arange(len(here)), np.array([len(given) for given in members], dtype=np.int64))]
        requests = self._interned("members", list(chain.from_iterable(members)), None, self.draft.request, rows)
        lines = np.array(self.lines)
        self.draft.extend("members_known", {"step": ids[here]}, lines[here])
        self.draft.extend("members", {"step": ids[rows], "request": requests}, lines[rows])


def _in(value: object, known: dict[Any, Any]) -> bool:
    try:
        return value in known
    except TypeError:
        return False
