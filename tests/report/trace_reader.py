"""Reads a Perfetto trace back as its trace processor does: tracks, nested slices, arguments, counters, flows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stallbook.report.perfetto import messages

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


@dataclass
class Track:
    name: str
    parent: int
    rank: int
    unit: str | None


@dataclass
class Slice:
    track: int
    ts: int
    name: str
    category: str
    args: dict[str, Any]
    depth: int
    parent: Slice | None
    dur: int = -1

    @property
    def end(self) -> int:
        return self.ts + self.dur


@dataclass
class Trace:
    tracks: dict[int, Track] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    arrows: list[tuple[Slice, Slice]] = field(default_factory=list)

    def of(self, category: str) -> list[Slice]:
        return [s for s in self.slices if s.category == category]

    def name_of(self, found: Slice) -> str:
        return self.tracks[found.track].name

    def path(self, found: Slice) -> str:
        names, at = [], found.track
        while at:
            names.append(self.tracks[at].name)
            at = self.tracks[at].parent
        return "/".join(reversed(names))


def packets(path: Path) -> Any:
    return messages().Trace.FromString(path.read_bytes()).packet


def read(path: Path) -> Trace:
    """What must hold for a trace to open rightly is asserted on the way."""
    trace, events = Trace(), []
    interned: dict[str, dict[int, str]] = defaultdict(dict)
    for i, packet in enumerate(packets(path)):
        assert packet.trusted_packet_sequence_id == 1
        if i == 0:
            assert packet.sequence_flags == 1
            assert packet.trace_packet_defaults.timestamp_clock_id == packet.clock_snapshot.primary_trace_clock == 3
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                assert entry.iid not in interned[kind.name]
                text = entry.str.decode() if kind.name.endswith("string_values") else entry.name
                interned[kind.name][entry.iid] = text
        if packet.HasField("track_descriptor"):
            d = packet.track_descriptor
            assert d.uuid not in trace.tracks
            assert not d.parent_uuid or d.parent_uuid in trace.tracks
            unit = d.counter.unit_name if d.HasField("counter") else None
            trace.tracks[d.uuid] = Track(d.name, d.parent_uuid, d.sibling_order_rank, unit)
        elif packet.HasField("track_event"):
            assert packet.sequence_flags == 2
            assert packet.track_event.track_uuid in trace.tracks
            events.append((packet.timestamp, i, decoded(packet.track_event, interned)))
    replay(trace, events)
    return trace


def decoded(event: Any, interned: dict[str, dict[int, str]]) -> dict[str, Any]:
    out: dict[str, Any] = {"type": event.type, "track": event.track_uuid, "value": event.counter_value}
    if event.type in (BEGIN, INSTANT):
        (category,) = event.category_iids
        out["name"] = interned["event_names"][event.name_iid]
        out["category"] = interned["event_categories"][category]
        out["flows"] = list(event.flow_ids)
        out["args"] = {
            interned["debug_annotation_names"][a.name_iid]: a.int_value
            if a.HasField("int_value")
            else interned["debug_annotation_string_values"][a.string_value_iid]
            for a in event.debug_annotations
        }
    return out


def replay(trace: Trace, events: list[tuple[int, int, dict[str, Any]]]) -> None:
    """In the order of time, and at one time in that of the file."""
    stacks: dict[int, list[Slice]] = defaultdict(list)
    flows: dict[int, Slice] = {}
    for ts, _, event in sorted(events, key=lambda e: e[:2]):
        stack = stacks[event["track"]]
        if event["type"] == COUNTER:
            trace.counters[trace.tracks[event["track"]].name].append((ts, event["value"]))
        elif event["type"] == END:
            stack[-1].dur = ts - stack[-1].ts
            stack.pop()
        else:
            parent = stack[-1] if stack else None
            made = Slice(event["track"], ts, event["name"], event["category"], event["args"], len(stack), parent)
            trace.slices.append(made)
            for flow in event["flows"]:
                if flow in flows:
                    trace.arrows.append((flows[flow], made))
                flows[flow] = made
            if event["type"] == INSTANT:
                made.dur = 0
            else:
                stack.append(made)
    assert not any(stacks.values())
    assert all(s.parent is None or s.parent.ts <= s.ts <= s.end <= s.parent.end for s in trace.slices)
