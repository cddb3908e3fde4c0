"""What `slow` reads: the interchange format as plain Python objects, merged and clipped as the contract says."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

NEVER = 1 << 62


@dataclass(frozen=True, order=True)
class Segment:
    """A window inside a step. `index` keeps two that are equal in everything apart."""

    step: int
    index: int
    name: str
    device: bool
    t0: int
    t1: int
    run_delay: int | None
    request: str | None


@dataclass(frozen=True)
class Step:
    """A step as the log tells it; `mixed` and `segments_have_delay` are read off its segments."""

    id: int
    t0: int
    t1: int
    graph: str
    padded: int | None
    decode_tokens: int
    prefill_tokens: int
    kv_tokens: int | None
    run_delay: int | None
    members: frozenset[str] | None
    mixed: bool
    segments_have_delay: bool


@dataclass(frozen=True)
class Emit:
    """One emitting step: all of its emissions share a stamp."""

    step: int
    t: int
    tokens: dict[str, int]


class Log:
    """A log, header first, with everything that section 3.2 merges merged."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.header, rows = events[0], events[1:]
        self.of: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            self.of[row["e"]].append(row)
        self.segments = [self.segment(i, row) for i, row in enumerate(self.of["segment"])]
        self.steps = {row["id"]: self.step(row) for row in sorted(self.of["step"], key=lambda row: row["id"])}
        self.pauses = [(g["t0"], g["t1"]) for g in self.of["gc"] if on_path(g.get("process") or "engine")]
        self.emits = self.all_emits()
        self.emits_of: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for i, emit in enumerate(self.emits):
            for request, tokens in emit.tokens.items():
                self.emits_of[request].append((i, tokens))
        self.evicted = self.all_evictions()
        self.held = self.all_holds()
        self.stamps = {row[k] for row in rows for k in ("t", "t0", "t1") if isinstance(row.get(k), int)}

    @staticmethod
    def segment(i: int, row: dict[str, Any]) -> Segment:
        device = row.get("lane") == "device"
        times = row["t0"], row["t1"]
        return Segment(row["step"], i, row["name"], device, *times, row.get("run_delay_ns"), row.get("request"))

    def step(self, row: dict[str, Any]) -> Step:
        own = [s for s in self.segments if s.step == row["id"]]
        prefill = row.get("prefill_tokens") or 0
        members = row.get("members")
        return Step(
            id=row["id"],
            t0=row["t0"],
            t1=row["t1"],
            graph=row.get("graph") or "none",
            padded=row.get("padded"),
            decode_tokens=-1 if row.get("decode_tokens") is None else row["decode_tokens"],
            prefill_tokens=prefill,
            kv_tokens=row.get("kv_tokens"),
            run_delay=row.get("run_delay_ns"),
            members=None if members is None else frozenset(members),
            mixed=prefill > 0 and not any(s.name == "prefill" for s in own),
            segments_have_delay=any(s.run_delay is not None and not s.device for s in own),
        )

    def all_emits(self) -> list[Emit]:
        """Lines of one step joined, emissions of no token dropped; a step that is left without any emits nothing."""
        stamps: dict[int, int] = {}
        tokens: dict[int, dict[str, int]] = defaultdict(dict)
        for row in self.of["emit"]:
            for request, n in row["tokens"].items():
                if n > 0:
                    stamps[row["step"]] = row["t"]
                    tokens[row["step"]][request] = tokens[row["step"]].get(request, 0) + n
        return [Emit(step, stamps[step], tokens[step]) for step in sorted(stamps)]

    def all_evictions(self) -> dict[str, list[tuple[int, int]]]:
        """Told twice counts once; at one instant what is open closes first; what never ends stays open."""
        out: dict[str, list[tuple[int, int]]] = defaultdict(list)
        told: dict[tuple[int, str], list[str]] = defaultdict(list)
        for row in self.of["evict"] + self.of["readmit"]:
            told[row["t"], row["request"]].append(row["e"])
        opened: dict[str, int] = {}
        for (t, request), events in sorted(told.items()):
            ends = events.count("readmit")
            if ends and request in opened:
                out[request].append((opened.pop(request), t))
                ends -= 1
            if "evict" in events:
                opened.setdefault(request, t)
            if ends:  # it opened and ended at this instant: a window of no length
                opened.pop(request, None)
        for request, t in opened.items():
            out[request].append((t, NEVER))
        return out

    def all_holds(self) -> dict[str, list[tuple[int, int, str]]]:
        """Holds of one request and kind that overlap are one; those that only touch are two."""
        out: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        told = [(h["request"], h["kind"], h["t0"], NEVER if h["t1"] is None else h["t1"]) for h in self.of["hold"]]
        for request, kind, t0, t1 in sorted(told):
            mine = out[request]
            if t0 == t1:
                continue
            if mine and mine[-1][2] == kind and t0 < mine[-1][1]:
                mine[-1] = (mine[-1][0], max(t1, mine[-1][1]), kind)
            else:
                mine.append((t0, t1, kind))
        return out


def on_path(process: str) -> bool:
    """Rule 5: whose pauses the token waits for."""
    return process == "engine" or re.fullmatch(r"worker:[0-9]+", process) is not None
