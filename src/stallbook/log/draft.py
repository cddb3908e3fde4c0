"""`Draft`: what a reader collects before it becomes a `Run`. Raw columns, in any order, steps by id.

Every reader (bundle, JSON Lines, the post's `.npz`) fills one and calls `finish`, which normalises and checks.
Each row may carry its origin (a line number, a row of an array, a step id), so that an error can name its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.errors import StallbookError
from stallbook.run import UNKNOWN, ExplicitBaseline, Ints, Run

__all__ = ["TABLES", "Column", "Draft"]


@dataclass(frozen=True)
class Column:
    """What a raw column may hold: `kind` names the check, `default` stands for "not recorded"."""

    kind: str
    default: int = -1


_REQUEST = Column("request")
_OWNER = Column("owner")  # a request, or -1
_NAME = Column("name")
_STEP = Column("id")
_TIME = Column("time", UNKNOWN)
_MAYBE = Column("time or unknown", UNKNOWN)
_END = Column("end", UNKNOWN)  # a time, or NEVER
_COUNT = Column("count")  # -1 where not recorded
_SURE = Column("sure count")
_TOKENS = Column("token count")  # -1 where not recorded
_SURE_TOKENS = Column("sure token count")
_FLAG = Column("flag")

TABLES: Final[Mapping[str, Mapping[str, Column]]] = {
    "arrivals": {"request": _REQUEST, "t": _MAYBE, "prompt_tokens": _TOKENS, "max_tokens": _TOKENS},
    "admits": {"request": _REQUEST, "t": _TIME},
    "finishes": {"request": _REQUEST, "t": _TIME},
    "steps": {
        "id": _STEP, "t0": _TIME, "t1": _TIME, "graph": Column("graph", 0), "padded": _TOKENS, "decode_tokens": _TOKENS,
        "prefill_tokens": _TOKENS, "kv_tokens": _TOKENS, "run_delay": _COUNT, "cpu": _COUNT,
        "blocked": Column("blocked"),
    },
    "segments": {
        "step": _STEP, "name": _NAME, "device": Column("flag", 0), "t0": _TIME, "t1": _TIME, "run_delay": _COUNT,
        "request": _OWNER,
    },
    "pauses": {"t0": _TIME, "t1": _TIME, "generation": _COUNT, "process": _NAME},
    "emits": {"step": _STEP, "t": _TIME, "request": _REQUEST, "tokens": _SURE_TOKENS},
    "evicts": {"request": _REQUEST, "t": _TIME, "recompute": _FLAG, "lost_tokens": _COUNT},
    "readmits": {"request": _REQUEST, "t": _TIME},
    "evictions": {"request": _REQUEST, "t0": _TIME, "t1": _END, "recompute": _FLAG, "lost_tokens": _COUNT},
    "holds": {"request": _REQUEST, "kind": _NAME, "t0": _TIME, "t1": _END},
    "deliveries": {"request": _REQUEST, "t": _TIME, "tokens": _SURE_TOKENS, "boundary": Column("flag", 0)},
    "members": {"step": _STEP, "request": _REQUEST},
    "members_known": {"step": _STEP},
    "probes": {"t": _TIME, "ns": _SURE},
}  # fmt: skip
"""The raw tables. `evictions` is for logs that know windows, `evicts` and `readmits` for those that saw events."""


@dataclass
class Draft:
    """A recording on its way in. See the module; `unit` says what an origin counts."""

    path: str = ""
    forgiving: bool = False
    """Where a value contradicts the others: leave it out and count it, rather than refuse all. See `mend`."""
    unit: str = "line"
    """`line`: places print as `PATH:12`; `row`: as `PATH: TABLE[12]`; any other word: as `PATH: WORD 12`."""
    engine: str = ""
    boundary: str = "engine"
    records: frozenset[str] = frozenset()
    config: dict[str, Any] = field(default_factory=dict)
    baseline: ExplicitBaseline | None = None
    wall_ns: int = -1
    preemptions: int = -1
    notes: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    """What the file calls a table, where it differs from `TABLES`."""
    _requests: dict[str, int] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _rows: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    _chunks: dict[str, list[dict[str, Ints]]] = field(default_factory=dict)

    def request(self, name: str) -> int:
        """The index of a request id; a new id gets a new row."""
        return self._requests.setdefault(name, len(self._requests))

    def name(self, name: str) -> int:
        """The index of a segment name, a hold kind or a process name."""
        return self._names.setdefault(name, len(self._names))

    @property
    def request_names(self) -> tuple[str, ...]:
        """All request ids, by index."""
        return tuple(self._requests)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, by index."""
        return tuple(self._names)

    def add(self, table: str, origin: int = -1, **columns: int) -> None:
        """One row. For more than a few thousand rows use `extend`."""
        spec = TABLES[table]
        if unknown := columns.keys() - spec.keys():
            raise TypeError(f"{table} has no column {sorted(unknown)}")
        row = tuple(columns.get(name, column.default) for name, column in spec.items())
        self._rows.setdefault(table, []).append((*row, origin))

    def extend(self, table: str, columns: Mapping[str, npt.ArrayLike], origin: npt.ArrayLike | None = None) -> None:
        """Many rows at once: equally long integer arrays (a scalar stands for a constant column)."""
        spec = TABLES[table]
        if unknown := columns.keys() - spec.keys():
            raise TypeError(f"{table} has no column {sorted(unknown)}")
        given = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
        given["origin"] = np.asarray(-1 if origin is None else origin, dtype=np.int64)
        n = max((len(column) for column in given.values() if column.ndim), default=1)
        for name, column in spec.items():
            given.setdefault(name, np.asarray(column.default, dtype=np.int64))
        self._chunks.setdefault(table, []).append({name: np.broadcast_to(array, (n,)) for name, array in given.items()})

    def amend(self, table: str, key: str, rows: Mapping[int, Mapping[str, int]]) -> None:
        """Replace columns of the rows whose `key` is known to another source."""
        whole = {name: column.copy() for name, column in self.table(table).items()}
        at = {value: row for row, value in enumerate(whole[key].tolist())}
        for value, columns in rows.items():
            if (row := at.get(value)) is not None:
                for name, new in columns.items():
                    whole[name][row] = new
        self._rows.pop(table, None)
        self._chunks[table] = [whole]

    def table(self, table: str) -> dict[str, Ints]:
        """All rows of a raw table as columns, with an `origin` column."""
        names = [*TABLES[table], "origin"]
        chunks = list(self._chunks.get(table, ()))
        if rows := self._rows.get(table):
            chunks.append(dict(zip(names, np.array(rows, dtype=np.int64).T.copy(), strict=True)))
        if not chunks:
            return {name: np.empty(0, dtype=np.int64) for name in names}
        if len(chunks) == 1:
            return {name: chunks[0][name] for name in names}
        return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}

    def place(self, table: str, origin: int) -> str:
        """The file and the place in it, for an error message."""
        if origin < 0:
            return self.path
        if self.unit == "line":
            return f"{self.path}:{origin}"
        if self.unit == "row":
            return f"{self.path}: {self.labels.get(table, table)}[{origin}]"
        return f"{self.path}: {self.unit} {origin}"

    def error(self, slug: str, table: str, origin: int, what: str, remedy: str) -> StallbookError:
        """An error that names the place of a row."""
        return StallbookError(slug, what, remedy, self.place(table, int(origin)))

    def finish(self) -> Run:
        """Sort, merge, join, drop, count and check: the canonical `Run`, or a `StallbookError`."""
        from stallbook.log.normalise import build

        return build(self)
