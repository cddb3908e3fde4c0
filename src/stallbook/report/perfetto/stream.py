"""A trace as a stream of packets: one sequence, strings interned at their first use, a bounded buffer.

The messages are Perfetto's own, from its `perfetto` package; a serialised `Trace` may be cut anywhere between two
packets, so that a buffer of them is written, forgotten, and filled anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, Any, Final

from stallbook.errors import StallbookError

__all__ = ["Stream", "messages"]

BUFFERED: Final = 2048
"""Packets held at a time: what bounds the memory of a trace."""

SEQUENCE: Final = 1
MONOTONIC: Final = 3  # BUILTIN_CLOCK_MONOTONIC
CLEARED, NEEDS_STATE = 1, 2
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
UNMERGED: Final = 2  # SIBLING_MERGE_BEHAVIOR_NONE
LARGEST: Final = 2**63

Args = Mapping[str, int | str]


def messages() -> Any:
    """Perfetto's messages; one line of advice where they are not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise StallbookError(
            "missing-extra", "a Perfetto trace needs the perfetto package", "pip install 'stallbook[perfetto]'"
        ) from error
    return perfetto_trace_pb2


class Stream:
    """Writes tracks and their events to a file. Events of one track come in the order of time, an end before a
    beginning at the same time; tracks may follow each other in any order.

    shift: added to every time: a trace knows none below 0.
    """

    def __init__(self, file: IO[bytes], shift: int, start: int) -> None:
        self._trace_type = messages().Trace
        self._file, self._shift = file, shift
        self._buffer = self._trace_type()
        self._interned: dict[str, dict[str, int]] = {
            kind: {}
            for kind in ("event_categories", "event_names", "debug_annotation_names", "debug_annotation_string_values")
        }
        self._uuid = 0
        self._open(start)

    def track(self, name: str, parent: int = 0, *, rank: int = 0, by_rank: bool = False, about: str = "") -> int:
        """A new track; its children stand in the order of their ranks, or of their first events."""
        track = self._descriptor(name, parent, rank, about)
        track.child_ordering = 3 if by_rank else 2  # EXPLICIT, CHRONOLOGICAL
        return int(track.uuid)

    def lane(self, name: str, parent: int, *, rank: int = 0, about: str = "", alone: bool = False) -> int:
        """A new track of slices; those of one name and parent are shown as one, unless they are `alone`."""
        track = self._descriptor(name, parent, rank, about)
        if alone:
            track.sibling_merge_behavior = UNMERGED
        return int(track.uuid)

    def counter(self, name: str, parent: int, unit: str, *, rank: int = 0, about: str = "") -> int:
        """A new track of values."""
        track = self._descriptor(name, parent, rank, about)
        track.counter.unit_name = unit
        return int(track.uuid)

    def begin(self, track: int, t: int, name: str, category: str, args: Args, flow: int = 0) -> None:
        """A slice begins; `flow` leads from its end to wherever else that number stands."""
        self._event(BEGIN, track, t, name, category, args, flow)

    def end(self, track: int, t: int) -> None:
        """The innermost open slice of the track ends."""
        event = self._packet(t).track_event
        event.type, event.track_uuid = END, track

    def instant(self, track: int, t: int, name: str, category: str, args: Args, flow: int = 0) -> None:
        """A moment."""
        self._event(INSTANT, track, t, name, category, args, flow)

    def _event(self, kind: int, track: int, t: int, name: str, category: str, args: Args, flow: int) -> None:
        packet = self._packet(t)
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        self._describe(packet, event, name, category, args)
        if flow:
            event.flow_ids.append(flow)

    def count(self, track: int, points: Iterable[tuple[int, int]]) -> None:
        """Values of a counter, each with its time."""
        for t, value in points:
            event = self._packet(t).track_event
            event.type, event.track_uuid, event.counter_value = COUNTER, track, value

    def flush(self) -> None:
        """Write what is held."""
        self._file.write(self._buffer.SerializeToString())
        self._buffer = self._trace_type()

    def _open(self, start: int) -> None:
        """The first packet: which clock the times are of."""
        packet = self._bare()
        packet.sequence_flags = CLEARED
        packet.trace_packet_defaults.timestamp_clock_id = MONOTONIC
        packet.clock_snapshot.primary_trace_clock = MONOTONIC
        clock = packet.clock_snapshot.clocks.add()
        clock.clock_id, clock.timestamp = MONOTONIC, start + self._shift

    def _descriptor(self, name: str, parent: int, rank: int, about: str) -> Any:
        self._uuid += 1
        track = self._bare().track_descriptor
        track.uuid, track.name = self._uuid, _text(name)
        if parent:
            track.parent_uuid = parent
        if rank:
            track.sibling_order_rank = rank
        if about:
            track.description = about
        return track

    def _bare(self) -> Any:
        if len(self._buffer.packet) >= BUFFERED:
            self.flush()
        packet = self._buffer.packet.add()
        packet.trusted_packet_sequence_id = SEQUENCE
        return packet

    def _packet(self, t: int) -> Any:
        packet = self._bare()
        packet.sequence_flags = NEEDS_STATE
        packet.timestamp = t + self._shift
        return packet

    def _describe(self, packet: Any, event: Any, name: str, category: str, args: Args) -> None:
        event.name_iid = self._iid(packet, "event_names", name)
        event.category_iids.append(self._iid(packet, "event_categories", category))
        for key, value in args.items():
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._iid(packet, "debug_annotation_names", key)
            if isinstance(value, str):
                annotation.string_value_iid = self._iid(packet, "debug_annotation_string_values", value)
            else:
                annotation.int_value = value

    def _iid(self, packet: Any, kind: str, text: str) -> int:
        """The number of a string; at its first use it is told with the packet."""
        known = self._interned[kind]
        if (found := known.get(text)) is None:
            found = known[text] = len(known) + 1
            entry = getattr(packet.interned_data, kind).add()
            entry.iid = found
            if kind == "debug_annotation_string_values":
                entry.str = _text(text).encode()
            else:
                entry.name = _text(text)
        return found


def _text(name: str) -> str:
    """As UTF-8 can hold it: a log's names may have lone surrogates."""
    return name.encode("utf-8", "backslashreplace").decode()
