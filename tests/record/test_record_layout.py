"""The bytes of a step."""

from __future__ import annotations

import struct

import pytest

from stallbook.log.spool_v1 import upgraded
from stallbook.record import spool as f


@pytest.mark.parametrize("kind", sorted(f.BODIES))
def test_steps_of_the_first_version_are_read(kind: int) -> None:
    """Its head was in another order, names came before times, and each delay followed its time."""
    marks = 3
    head = struct.Struct("<qqqqBBHqqqq" if kind in f.WIDE.values() else "<IqIiBBHhhii")
    delay = f.DELAYS[kind]
    pairs = [(100 + i, 7 + i) for i in range(marks)]
    times = [value for pair in pairs for value in (pair if delay else pair[:1])]
    ends = [41, 42] if f.ENDS[kind] else []
    old = head.pack(5, 90, 60, 50, 1, 8, marks, 32, 31, 16, 999) + bytes([2, 3, f.NO_NAME])
    old += struct.pack("<" + f"q{delay}" * marks + f.ENDS[kind], *times, *ends) + b"tail"
    delays = [d for _, d in pairs] if delay else []
    new = (marks, 1, 8, 90, 5, 60, 50, 16, 999, 32, 31, *[t for t, _ in pairs], *delays, *ends, 2, 3, f.NO_NAME)
    assert bytes(upgraded(kind, memoryview(old))) == f.body(kind, marks).pack(*new) + b"tail"


def test_the_usual_record_is_the_payload_between_its_head_and_its_word() -> None:
    """Packed at once and natively aligned, or in parts and packed tight: the same bytes."""
    for kind in f.WIDE:
        for marks in (0, 1, 2, 5, 6, 7):
            pack, head, word, size = f.layout(kind, marks)
            extra = len(f.ENDS[kind]) + (marks if f.DELAYS[kind] else 0)
            values = (marks, 1, 9, 10**15, 5, 600, 500, 16, 999, 32, 31, *[10**15] * marks, *[-1] * extra, *[7] * marks)
            record = bytearray(size)
            pack(record, 0, head, *values, word)
            payload = f.body(kind, marks).pack(*values)
            assert record[4 : 4 + len(payload)] == payload
            assert (record[:4], record[-8:]) == (head.to_bytes(4, "little"), word.to_bytes(8, "little"))
            assert size % 8 == 0
