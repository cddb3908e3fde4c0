"""What is left of a recording whose values contradict each other: one wrong call must not cost an instrument its log.

The recorder checks its rare calls, but not those of every step. So a native log can hold what `check` refuses in files
that are written for exchange. Here each such value becomes "not recorded", or its row is left out where it makes no
sense without it; both are counted as `refused_values`, and a whole step as `refused_steps`.

Of two values that contradict each other, what is better known stays: an emission over a request's other events, more
stamps over fewer, what was told first over what came later.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from stallbook.log.arrays import Columns, Mask, order, take
from stallbook.log.check import outside_range
from stallbook.log.draft import TABLES, Draft
from stallbook.run import UNKNOWN, Ints

__all__ = ["mended"]

_OF_STEPS = ("emits", "segments", "members", "members_known")
_FURTHEST = 2**63 - 1


def mended(draft: Draft) -> dict[str, Columns]:
    """The raw tables of a draft without what contradicts itself."""
    mend = _Mend(draft)
    mend.ranges()
    mend.steps()
    mend.emissions()
    mend.segments()
    mend.lives()
    mend.pauses()
    return mend.raw


class _Mend:
    """The tables, which shrink as they are mended, and the count of what went."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.raw = {name: draft.table(name) for name in TABLES}
        self.told = self.raw["steps"]["id"]

    def _drop(self, name: str, bad: Mask, note: str = "refused_values") -> None:
        if bad.any():
            self.draft.notes[note] += int(np.count_nonzero(bad))
            self.raw[name] = take(self.raw[name], ~bad)

    def _forget(self, name: str, column: str, bad: Mask, value: int) -> None:
        if bad.any():
            self.draft.notes["refused_values"] += int(np.count_nonzero(bad))
            self.raw[name] = self.raw[name] | {column: np.where(bad, value, self.raw[name][column])}

    def ranges(self) -> None:
        """Each value within its kind; no window ends before it starts."""
        for name, spec in TABLES.items():
            lost = np.zeros(len(self.raw[name]["origin"]), dtype=np.bool_)
            for column, kind in spec.items():
                bad = outside_range(self.draft, kind, self.raw[name][column])
                none = outside_range(self.draft, kind, np.array([kind.default]))[0]  # it has no "not recorded"
                if none or kind.kind == "id" or (kind.kind == "flag" and kind.default == 0):
                    lost |= bad
                else:
                    self._forget(name, column, bad, kind.default)
            if "t0" in spec:
                lost |= self.raw[name]["t0"] > self.raw[name]["t1"]
            self._drop(name, lost, "refused_steps" if name == "steps" else "refused_values")

    def steps(self) -> None:
        """Each id once, starts that do not fall, no padded size below the batch; nothing of a step that is absent."""
        self.raw["steps"] = take(self.raw["steps"], order(self.raw["steps"]["id"], self.raw["steps"]["origin"]))
        step = self.raw["steps"]
        again = np.zeros(len(step["id"]), dtype=np.bool_)
        again[1:] = step["id"][1:] == step["id"][:-1]
        self._drop("steps", again, "refused_steps")
        self._drop("steps", _falling(self.raw["steps"]["t0"]), "refused_steps")
        step = self.raw["steps"]
        self._forget("steps", "padded", (step["padded"] >= 0) & (step["padded"] < step["decode_tokens"]), -1)
        for name in _OF_STEPS:
            gone = np.isin(self.raw[name]["step"], self.told) & ~np.isin(self.raw[name]["step"], step["id"])
            self.raw[name] = take(self.raw[name], ~gone)  # counted with its step
            self._drop(name, ~np.isin(self.raw[name]["step"], step["id"]))

    def emissions(self) -> None:
        """One stamp a step, not before its start, not before that of a step before."""
        rows = self._rows("emits")
        stamp = np.full(len(self.raw["steps"]["id"]), UNKNOWN)
        stamp[rows[::-1]] = self.raw["emits"]["t"][::-1]  # the first one told
        t = self.raw["emits"]["t"]
        self._drop("emits", (t != stamp[rows]) | (t < self.raw["steps"]["t0"][rows]))
        rows = self._rows("emits")
        emitting = np.unique(rows)
        bad = emitting[_falling(stamp[emitting])]
        self._drop("emits", np.isin(rows, bad))

    def segments(self) -> None:
        """Within their step, and nested."""
        step, rows, s = self.raw["steps"], self._rows("segments"), self.raw["segments"]
        host = s["device"] != 1
        self._drop("segments", (s["t0"] < step["t0"][rows]) | (host & (s["t1"] > step["t1"][rows])))
        rows, s = self._rows("segments"), self.raw["segments"]
        self._drop("segments", _crossing(rows * 2 + (s["device"] == 1), s["t0"], s["t1"]))

    def lives(self) -> None:
        """Arrival, admission, events, emissions, finish: in this order."""
        for name in ("arrivals", "finishes"):
            self._drop(name, _repeated(self.raw[name]["request"]))
        emits = take(self.raw["emits"], self.raw["emits"]["tokens"] > 0)
        n = len(self.draft.request_names)
        head, last = np.full(n, _FURTHEST), np.full(n, UNKNOWN)
        np.minimum.at(head, emits["request"], emits["t"])
        np.maximum.at(last, emits["request"], emits["t"])
        came = self.raw["arrivals"]
        self._forget("arrivals", "t", came["t"] > head[came["request"]], UNKNOWN)
        self._drop("finishes", self.raw["finishes"]["t"] < last[self.raw["finishes"]["request"]])
        arrive, finish = np.full(n, UNKNOWN), np.full(n, _FURTHEST)
        came = self.raw["arrivals"]
        arrive[came["request"]] = came["t"]
        self._drop("finishes", self.raw["finishes"]["t"] < arrive[self.raw["finishes"]["request"]])
        finish[self.raw["finishes"]["request"]] = self.raw["finishes"]["t"]
        for name in ("admits", "evicts", "readmits", "evictions", "holds", "deliveries"):
            who, t = self.raw[name]["request"], self.raw[name]["t0" if "t0" in TABLES[name] else "t"]
            late = (t > finish[who]) & (name != "deliveries")
            self._drop(name, (t < arrive[who]) | late)
        who, t = self.raw["admits"]["request"], self.raw["admits"]["t"]
        first = np.full(n, _FURTHEST)
        np.minimum.at(first, who, t)
        self._drop("admits", (arrive[who] != UNKNOWN) & (first[who] > head[who]))

    def pauses(self) -> None:
        """None of the engine's own process has an emission strictly inside."""
        own = self.draft.names.index("engine") if "engine" in self.draft.names else -1
        stamps = np.unique(self.raw["emits"]["t"][self.raw["emits"]["tokens"] > 0])
        p = self.raw["pauses"]
        inside = np.searchsorted(stamps, p["t0"], "right") < np.searchsorted(stamps, p["t1"], "left")
        self._drop("pauses", inside & (p["process"] == own))

    def _rows(self, name: str) -> Ints:
        return np.searchsorted(self.raw["steps"]["id"], self.raw[name]["step"])


def _repeated(key: Ints) -> Mask:
    """All but the first row of each key."""
    bad = np.ones(len(key), dtype=np.bool_)
    bad[np.unique(key, return_index=True)[1]] = False
    return bad


def _falling(t: Ints) -> Mask:
    """The fewest rows without which the others do not fall."""
    bad = np.zeros(len(t), dtype=np.bool_)
    if not np.any(t[1:] < t[:-1]):
        return bad
    values = t.tolist()
    ends: list[int] = []  # the lowest end of a rising row of each length
    where: list[int] = []
    before = []
    for i, value in enumerate(values):
        length = bisect_right(ends, value)
        before.append(where[length - 1] if length else -1)
        ends[length : length + 1] = [value]
        where[length : length + 1] = [i]
    bad[:] = True
    at = where[-1]
    while at >= 0:
        bad[at] = False
        at = before[at]
    return bad


def _crossing(lane: Ints, t0: Ints, t1: Ints) -> Mask:
    """Of the windows of a lane, those that cross one that started before."""
    bad = np.zeros(len(lane), dtype=np.bool_)
    rows = np.lexsort((-t1, t0, lane))
    close = (lane[rows][1:] == lane[rows][:-1]) & (t0[rows][1:] < t1[rows][:-1])
    busy = np.isin(lane, np.unique(lane[rows][1:][close]))
    open_: list[tuple[int, int]] = []  # lane and end
    for i in rows[busy[rows]].tolist():
        if t0[i] == t1[i]:
            continue
        while open_ and (open_[-1][0] != lane[i] or open_[-1][1] <= t0[i]):
            open_.pop()
        if open_ and open_[-1][1] < t1[i]:
            bad[i] = True
        else:
            open_.append((int(lane[i]), int(t1[i])))
    return bad
