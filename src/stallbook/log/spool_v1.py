"""Steps as version 1 of the spool held them: other fields first, and each mark's delay beside its time."""

from __future__ import annotations

import struct
from typing import Final

from stallbook.record import spool as f

__all__ = ["upgraded"]

_WIDE: Final = frozenset(f.WIDE.values())


def upgraded(kind: int, payload: memoryview) -> memoryview:
    """The payload of a step of version 1 in the layout of this one."""
    wide = kind in _WIDE
    head = struct.Struct("<qqqqBBHqqqq" if wide else "<IqIiBBHhhii")
    step, t0, length, emitted, graph, flags, marks, padded, decode, prefill, kv = head.unpack_from(payload)
    delay = f.DELAYS[kind]
    rest = struct.Struct(f"<{marks}B" + f"q{delay}" * marks + f.ENDS[kind])
    names_and_times = rest.unpack_from(payload, head.size)
    names, ends = names_and_times[:marks], names_and_times[len(names_and_times) - len(f.ENDS[kind]) :]
    times = names_and_times[marks : len(names_and_times) - len(ends)]
    if delay:
        times = times[::2] + times[1::2]
    fields = (marks, graph, flags, t0, step, length, emitted, prefill, kv, padded, decode, *times, *ends, *names)
    return memoryview(f.body(kind, marks).pack(*fields) + payload[head.size + rest.size :])
