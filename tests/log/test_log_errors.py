"""Contradictions, each named with its line."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from logfiles import HEADER, emit, gc, hold, load, of, refused, save, segment, step

from stallbook.log import jsonl
from stallbook.log.draft import Draft

S0 = step(0, 0, 10)
S1 = step(1, 10, 20)

# slug, the line that must be named, what the message must say, events (the first is line 2)
CONTRADICTIONS: dict[str, tuple[str, int, str, list[Any]]] = {
    "step backwards": ("backwards", 2, "t1 = 5 lies before t0 = 9", [step(0, 9, 5)]),
    "segment backwards": ("backwards", 3, "t1 = 3", [S0, segment(0, 5, 3)]),
    "pause backwards": ("backwards", 3, "t1 = 1", [S0, gc(5, 1)]),
    "hold backwards": ("backwards", 3, "t1 = 1", [S0, hold(5, 1)]),
    "step starts fall": ("backwards", 3, "before step 1", [step(1, 5, 9), step(2, 4, 9)]),
    "step starts fall, told late": ("backwards", 2, "step 2", [step(2, 4, 9), step(1, 5, 9)]),
    "emissions fall": ("backwards", 5, "step 1 emits at 11", [S0, S1, emit(0, 12), emit(1, 11)]),
    "emission early": ("early-emission", 3, "before it starts", [S1, emit(1, 9)]),
    "emission of no step": ("unknown-step", 3, "no step 7", [S0, emit(7, 9)]),
    "emission without steps": ("unknown-step", 2, "no step 7", [emit(7, 9)]),
    "sparse step ids": ("unknown-step", 4, "no step 5", [S0, step(9, 10, 20), emit(5, 9)]),
    "segment of no step": ("unknown-step", 3, "no step 2", [S0, segment(2, 1, 2)]),
    "segment before its step": ("outside-step", 4, "lies outside step 1", [S0, S1, segment(1, 9, 12)]),
    "segment after its step": ("outside-step", 3, "lies outside step 0", [S0, segment(0, 9, 11)]),
    "empty segment outside": ("outside-step", 3, "lies outside step 0", [S0, segment(0, 11, 11)]),
    "device before its step": ("outside-step", 3, "starts before step 1", [S1, segment(1, 9, 15, lane="device")]),
    "crossing": ("crossing", 4, "line 3", [S0, segment(0, 1, 5), segment(0, 4, 8, "tok")]),
    "crossing, told early": ("crossing", 4, "line 3", [S0, segment(0, 4, 8), segment(0, 1, 5)]),
    "crossing in a nest": (
        "crossing", 6, "line 5",
        [S0, segment(0, 0, 10), segment(0, 1, 2), segment(0, 3, 7), segment(0, 5, 8), segment(0, 9, 10)],
    ),
    "crossing on the device": (
        "crossing", 4, "line 3",
        [S0, segment(0, 1, 5, lane="device"), segment(0, 4, 8, lane="device")],
    ),
    "emission in a pause": ("emission-in-pause", 3, "3 to 9 (line 4)", [S0, emit(0, 5), gc(3, 9)]),
    "emission in merged pauses": ("emission-in-pause", 3, "2 to 9", [S0, emit(0, 5), gc(2, 6), gc(4, 9)]),
    "two stamps": ("two-stamps", 4, "also at 5 (line 3)", [S0, emit(0, 5), emit(0, 6)]),
    "two stamps, one early": ("two-stamps", 4, "line 3", [S1, emit(1, 15), emit(1, 5)]),
    "arrives twice": ("request-twice", 4, "first: line 2", [of("arrive", 0), S0, of("arrive", 3)]),
    "finishes twice": ("request-twice", 3, "first: line 2", [of("finish", 3), of("finish", 3)]),
    "arrives after finish": ("after-finish", 3, "after its finish at 3", [of("finish", 3), of("arrive", 4)]),
    "admitted after finish": ("after-finish", 3, "after its finish at 3", [of("finish", 3), of("admit", 4)]),
    "evicted after finish": ("after-finish", 3, "after its finish at 3", [of("finish", 3), of("evict", 4)]),
    "readmitted after finish": ("after-finish", 3, "after its finish at 3", [of("finish", 3), of("readmit", 4)]),
    "held after finish": ("after-finish", 3, "after its finish at 3", [of("finish", 3), hold(4, 5)]),
    "emits after finish": ("after-finish", 4, "after its finish at 3", [of("finish", 3), S0, emit(0, 4)]),
    "admitted before arrival": ("backwards", 2, "before it arrives at 9", [of("admit", 8), of("arrive", 9)]),
    "emits before arrival": ("backwards", 3, "before it arrives at 9", [S0, emit(0, 8), of("arrive", 9)]),
    "delivered before arrival": (
        "backwards", 3, "before it arrives at 9",
        [of("arrive", 9), of("deliver", 8, tokens=1, boundary="client")],
    ),
    "emits before admission": ("backwards", 3, "first admission", [S0, emit(0, 8), of("arrive", 1), of("admit", 9)]),
    "padded too small": ("padded", 2, "below the 5 decode rows", [step(0, 0, 9, padded=4, decode_tokens=5)]),
    "padded too small, unused": (
        "padded", 2, "below the 5", [step(0, 0, 9, padded=4, decode_tokens=5, graph="eager")],
    ),
    "step twice": ("duplicate-step", 4, "first: line 2", [S0, S1, step(0, 0, 10)]),
    "time too large": ("range", 2, "out of range", [step(0, 0, 2**61)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradiction_is_named_with_its_line(case: str, tmp_path: Path) -> None:
    slug, line, says, events = CONTRADICTIONS[case]
    error = refused(save(tmp_path / "run.jsonl", *events))
    assert error.slug == slug
    assert error.where == f"{tmp_path / 'run.jsonl'}:{line}"
    assert says in error.what


# the line that must be named is always 3; line 2 is sound
FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "id missing": ("id is missing", {"e": "step", "t0": 0, "t1": 1}),
    "a bool": ("t0 = True is not an integer", step(9, True, 1)),
    "a float": ("t0 = 0.5 is not an integer", step(9, 0.5, 1)),  # type: ignore[arg-type]
    "a whole float": ("t1 = 20.0 is not an integer", step(9, 10, 20.0)),  # type: ignore[arg-type]
    "a string": ("t1 = '20' is not an integer", step(9, 10, "20")),  # type: ignore[arg-type]
    "beyond int64": ("t1 is out of range", step(9, 10, 2**63)),
    "far beyond int64": ("t1 is out of range", step(9, 10, 10**400)),
    "negative count": ("prefill_tokens = -1 is negative", step(9, 10, 20, prefill_tokens=-1)),
    "negative delay": ("run_delay_ns = -5 is negative", step(9, 10, 20, run_delay_ns=-5)),
    "negative tokens": ("tokens = -2 is negative", emit(0, 5, r1=1, r2=-2)),
    "negative generation": ("generation = -1", {"e": "gc", "t0": 0, "t1": 1, "generation": -1}),
    "negative lost tokens": ("lost_tokens = -1", of("evict", 3, lost_tokens=-1)),
    "negative prompt": ("prompt_tokens = -1", of("arrive", 3, prompt_tokens=-1)),
    "negative delivery": ("tokens = -1", of("deliver", 3, tokens=-1, boundary="client")),
    "tokens not an object": ("tokens is not an object", {"e": "emit", "step": 0, "t": 5, "tokens": ["r1"]}),
    "tokens missing": ("tokens is missing", {"e": "emit", "step": 0, "t": 5}),
    "tokens a float": ("tokens = 1.5 is not an integer", emit(0, 5, r1=1.5)),  # type: ignore[arg-type]
    "tokens a bool": ("tokens = True is not an integer", emit(0, 5, r1=True)),
    "tokens null": ("tokens is missing", emit(0, 5, r1=None)),  # type: ignore[arg-type]
    "members not a list": ("members is not a list", step(9, 10, 20, members="r1")),
    "members of numbers": ("members: 7 is not a string", step(9, 10, 20, members=["r1", 7])),
    "members of lists": ("members: ['r1'] is not a string", step(9, 10, 20, members=[["r1"]])),
    "unknown graph": ("graph = 'maybe' is unknown", step(9, 10, 20, graph="maybe")),
    "graph of a wrong type": ("graph = ['eager'] is unknown", step(9, 10, 20, graph=["eager"])),
    "unknown lane": ("lane = 'gpu' is unknown", segment(0, 1, 2, lane="gpu")),
    "unknown mode": ("mode = 'drop' is unknown", of("evict", 3, mode="drop")),
    "unknown boundary": ("boundary = 'moon' is unknown", of("deliver", 3, tokens=1, boundary="moon")),
    "boundary missing": ("boundary is missing", of("deliver", 3, tokens=1)),
    "request missing": ("request is missing", {"e": "admit", "t": 3}),
    "request a number": ("request: 7 is not a string", of("admit", 3, request=7)),  # type: ignore[arg-type]
    "request a list": ("request: [] is not a string", of("admit", 3, request=[])),  # type: ignore[arg-type]
    "request empty": ("request: an empty string", of("admit", 3, request="")),
    "name missing": ("name is missing", {"e": "segment", "step": 0, "t0": 1, "t1": 2}),
    "escape sequence": ("holds control characters", segment(0, 1, 2, name="\x1b[2J")),
    "half a character": ("holds control characters", of("admit", 3, request="\ud800")),
    "NUL in a name": ("holds control characters", of("admit", 3, request="a\0b")),
    "process a number": ("process: 3 is not a string", gc(1, 2, process=3)),
    "probe without ns": ("ns is missing", {"e": "probe", "t": 3}),
    "hold without kind": ("kind is missing", {"e": "hold", "request": "r1", "t0": 1, "t1": 2}),
}


@pytest.mark.parametrize("case", FIELDS)
def test_field_is_named_with_its_line(case: str, tmp_path: Path) -> None:
    says, event = FIELDS[case]
    error = refused(save(tmp_path / "run.jsonl", S0, event))
    assert error.slug == "field"
    assert error.where.endswith("run.jsonl:3")
    assert says in error.what


BROKEN: dict[str, tuple[str, str]] = {
    "not JSON": ("not JSON from column 1", "hello"),
    "cut off": ("not JSON", '{"e":"step","id"'),
    "not an object": ("not a JSON object", "[1,2]"),
    "two objects": ("more than one value", '{"e":"x"} {"e":"y"}'),
    "NaN": ("NaN is not JSON", '{"e":"step","id":NaN}'),
    "Infinity": ("-Infinity is not JSON", '{"e":"step","id":-Infinity}'),
    "key twice": ("the key 'id' stands twice", '{"e":"step","id":1,"t0":0,"t1":1,"id":2}'),
    "request twice in an emission": (
        "the key 'r1' stands twice",
        '{"e":"emit","step":0,"t":5,"tokens":{"r1":1,"r1":2}}',
    ),
    "too deep": ("nested too deeply", '{"e":' + "[" * 200_000),
    "a number without end": ("thousands of digits", '{"e":"step","id":' + "9" * 10_000 + "}"),
    "a raw NUL": ("not JSON", '{"e":"step","id":\0}'),
    "no event": ("no event name", '{"id": 3}'),
    "event of a wrong type": ("no event name", '{"e": 3}'),
    "second header": ("a second header", '{"stallbook": 1}'),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_line_is_named(case: str, tmp_path: Path) -> None:
    says, line = BROKEN[case]
    error = refused(save(tmp_path / "run.jsonl", S0, line, S1))
    assert error.slug == "format"
    assert error.where.endswith("run.jsonl:3")
    assert says in error.what


def test_broken_bytes_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "run.jsonl", S0)
    path.write_bytes(path.read_bytes() + b'{"e":"\xff"}\n')
    error = refused(path)
    assert (error.what, error.where) == ("not UTF-8 at byte 7", f"{path}:3")


HEADERS: dict[str, tuple[str, str, Any]] = {
    "missing": ("header", "not a header", S0),
    "an event": ("header", "not a header", {"stallbook": 1, **S0}),
    "newer": ("version", "version 2 is newer", {"stallbook": 2}),
    "version zero": ("header", "not a positive integer", {"stallbook": 0}),
    "version true": ("header", "not a positive integer", {"stallbook": True}),
    "version a string": ("header", "not a positive integer", {"stallbook": "1"}),
    "engine a number": ("header", "engine is not a string", HEADER | {"engine": 3}),
    "engine unprintable": ("header", "control characters", HEADER | {"engine": "a\x07"}),
    "boundary unknown": ("header", "boundary is 'moon'", HEADER | {"boundary": "moon"}),
    "records a string": ("header", "records is not a list", HEADER | {"records": "gc"}),
    "records of numbers": ("header", "records is not a list of strings", HEADER | {"records": [1]}),
    "config a list": ("header", "config is not an object", HEADER | {"config": []}),
    "config infinite": ("header", "not finite", '{"stallbook":1,"config":{"a":1e999}}'),
    "config half a character": ("header", "broken character", '{"stallbook":1,"config":{"a":"\\ud800"}}'),
    "baseline a string": ("header", "not a number of nanoseconds", HEADER | {"baseline": {"fixed_ns": "1"}}),
    "baseline a bool": ("header", "not a number of nanoseconds", HEADER | {"baseline": {"row_ns": True}}),
    "baseline huge": ("header", "not a number of nanoseconds", HEADER | {"baseline": {"row_ns": 1e300}}),
    "wall negative": ("header", "wall_ns = -1", HEADER | {"wall_ns": -1}),
    "notes wrong": ("header", "the note 'a'", HEADER | {"notes": {"a": -1}}),
    "not JSON": ("format", "not JSON", '{"stallbook":'),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADERS)
def test_header_is_refused(case: str, tmp_path: Path) -> None:
    slug, says, header = HEADERS[case]
    error = refused(save(tmp_path / "run.jsonl", S0, header=header))
    assert error.slug == slug
    assert says in error.what
    assert error.where.endswith("run.jsonl:1")
    assert slug != "version" or "upgrade" in error.remedy


SOUND: dict[str, list[Any]] = {
    "emission at a pause's start": [S0, emit(0, 3), gc(3, 9)],
    "emission at a pause's end": [S0, emit(0, 9), gc(3, 9)],
    "emission where pauses touch": [S0, emit(0, 5), gc(3, 5), gc(5, 9)],
    "emission in a worker's pause": [S0, emit(0, 5), gc(3, 9, process="worker:0")],
    "emission after its step's end": [S0, emit(0, 15)],
    "emission at its step's start": [S1, emit(1, 10)],
    "emissions at one instant": [S0, S1, emit(0, 10), emit(1, 10)],
    "steps that overlap": [step(0, 0, 30), step(1, 0, 20), emit(0, 20), emit(1, 20)],
    "segments that touch": [S0, segment(0, 0, 5), segment(0, 5, 10)],
    "segments that nest": [S0, segment(0, 0, 10), segment(0, 0, 5), segment(0, 5, 10), segment(0, 6, 7)],
    "segments that are identical": [S0, segment(0, 2, 5), segment(0, 2, 5, "tok"), segment(0, 2, 5)],
    "segments of two lanes": [S0, segment(0, 1, 5), segment(0, 4, 8, lane="device")],
    "segments of two steps": [S0, step(1, 0, 10), segment(0, 1, 5), segment(1, 4, 8)],
    "an empty segment in another": [S0, segment(0, 1, 5), segment(0, 3, 3), segment(0, 5, 5)],
    "device after its step": [S0, segment(0, 5, 50, lane="device")],
    "events at the finish": [S0, emit(0, 5), of("finish", 5), of("evict", 5), of("readmit", 5), hold(5, 9)],
    "delivery after the finish": [S0, emit(0, 5), of("finish", 5), of("deliver", 9, tokens=1, boundary="client")],
    "events at the arrival": [S0, of("arrive", 0), of("admit", 0), emit(0, 0)],
    "admission after the first emission that was seen": [S0, emit(0, 5), of("admit", 8)],
    "padded as large as the batch": [step(0, 0, 9, padded=5, decode_tokens=5)],
    "nulls": [step(0, 0, 9, padded=None, members=None, graph=None, cpu_ns=None), segment(0, 1, 2, request=None)],
    "no event at all": [],
}


@pytest.mark.parametrize("case", SOUND)
def test_sound_logs_open(case: str, tmp_path: Path) -> None:
    run = load(tmp_path, *SOUND[case])
    assert len(run.steps.id) == sum(event["e"] == "step" for event in SOUND[case])
    assert not run.notes


@pytest.mark.parametrize("blank", ["\n", " \t\r\n", "\n\n   \n"])
@pytest.mark.parametrize("zipped", [False, True])
def test_blank_lines_are_passed_over_and_counted(tmp_path: Path, blank: str, zipped: bool) -> None:
    """Runs of them around the size of the buffer; what follows keeps its line and its spaces."""
    path = tmp_path / ("x.jsonl.gz" if zipped else "x.jsonl")
    for n in (1, 2, 4_095, 8_191, 8_192, 8_193, 140_000):
        text = '\n{"stallbook": 1}\n' + blank * n + '  {"e": "step"}\n'
        path.write_bytes(gzip.compress(text.encode(), 1) if zipped else text.encode())
        assert f":{3 + n * blank.count(chr(10))}: " in str(refused(path))


def test_millions_of_blank_lines_are_not_read_one_by_one(tmp_path: Path) -> None:
    class Counting(io.BytesIO):
        lines = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            self.lines += 1
            return super().readline(size)

        def peek(self, _size: int = 0, /) -> bytes:
            return self.getvalue()[self.tell() : self.tell() + 8192]

    stream = Counting(b"\n" * 1_000_000 + b"{}\n" + b"\n" * 1_000_000)
    assert [number for number, _ in jsonl._lines(Draft(), stream)] == [1_000_001]
    assert stream.lines < 10
