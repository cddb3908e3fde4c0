"""Native logs whose folder or manifest was tampered with: one line that names the file, never a hang or a crash."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from logfiles import attempt, load, refused

import stallbook as sb
from stallbook.errors import StallbookError
from stallbook.record import spool as f

HUGE = 10**400
WRONG: list[dict[str, Any]] = [
    {"wall_ns": True}, {"wall_ns": -5}, {"wall_ns": 2**70}, {"preemptions": -3}, {"notes": {"x": -4}},
    {"notes": {"\x1b[31m": 4}}, {"notes": {"\ud800": 4}}, {"boundary": "\x1b"}, {"boundary": "foo"},
    {"records": ["\ud800"]}, {"records": [None]},
    {"baseline": {"fixed_ns": float("nan"), "row_ns": 0, "kv_token_ns": 0}},
    {"baseline": {"fixed_ns": HUGE, "row_ns": 0, "kv_token_ns": 0}}, {"stallbook_log": True}, {"stallbook_log": "1"},
]  # fmt: skip
ODD: list[dict[str, Any]] = [
    {"engine": "\x1b[2J"}, {"engine": "\ud800"}, {"config": {"a": float("nan")}}, {"config": {"\ud800": "\ud800"}},
    {"facts": {"closed": {"self_ns": HUGE}}}, {"closed": {"self_ns": float("inf")}},
]  # fmt: skip


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "run.stall"
    with sb.Recorder(path, engine="test 1", os_counters=None, gc_pauses=False) as rec:
        request = rec.arrive("r1")
        for _ in range(3):
            rec.begin()
            rec.join(request)
            rec.emit()
            rec.end()
    return path


def altered(bundle: Path, **fields: Any) -> Path:
    file = bundle / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return bundle


@pytest.mark.parametrize("fields", WRONG, ids=lambda fields: next(iter(fields)))
def test_a_wrong_manifest_is_refused(bundle: Path, fields: dict[str, Any]) -> None:
    assert "manifest.json" in refused(altered(bundle, **fields)).where


@pytest.mark.parametrize("fields", ODD, ids=lambda fields: next(iter(fields)))
def test_odd_settings_are_no_reason_to_lose_a_recording(bundle: Path, fields: dict[str, Any], tmp_path: Path) -> None:
    run = sb.open(altered(bundle, **fields))
    report = sb.report(run)
    str(report).encode()
    json.dumps(report.as_dict(), allow_nan=False, ensure_ascii=False).encode()
    sb.write(run, tmp_path / "copy.jsonl")
    assert sb.open(tmp_path / "copy.jsonl").config == run.config


@pytest.mark.parametrize("name", ["manifest.json", "engine.spool", "worker-0.spool"])
def test_what_is_no_file_is_not_read(bundle: Path, name: str) -> None:
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        (bundle / name).unlink(missing_ok=True)
        make(bundle / name)
        refused(bundle)
        (bundle / name).rmdir() if make is Path.mkdir else (bundle / name).unlink()


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_nested_bombs(bundle: Path, tmp_path: Path) -> None:
    run = load(tmp_path, header=f'{{"stallbook": 1, "config": {nested(900)}}}')
    json.dumps(sb.report(run).as_dict())
    file = bundle / "manifest.json"
    file.write_text(file.read_text().replace('"config": {}', f'"config": {nested(900)}'))
    json.dumps(sb.report(sb.open(bundle)).as_dict())
    for depth in (900, 90_000):
        (bundle / "engine.spool").write_bytes(spool((f.FACT, f'["a", {nested(depth)}]'.encode())))
        if not isinstance(told := attempt(bundle), StallbookError):
            json.dumps(sb.report(told).as_dict())


def test_names_that_no_terminal_should_see_are_spelled_out(tmp_path: Path) -> None:
    with sb.Recorder(tmp_path / "run.stall", engine="test 1", os_counters=None, gc_pauses=False) as rec:
        for name in ("a\nb\x1b[31m", ""):
            request = rec.arrive(name)
            rec.hold(request, name)
            rec.begin()
            rec.enter(rec.name(name))
            rec.join(request)
            rec.emit()
            rec.end()
    run = sb.open(tmp_path / "run.stall")
    assert sorted(run.requests.names) == sorted(run.names) == ["(empty)", "a\\u000ab\\u001b[31m"]
    sb.write(run, tmp_path / "run.jsonl")
    assert sb.open(tmp_path / "run.jsonl").requests.names == run.requests.names


def spool(*records: tuple[int, bytes]) -> bytes:
    data = bytearray(f.MAGIC)
    for kind, payload in records:
        head = kind << 24 | len(payload)
        size = (len(payload) + 11) & ~7
        data += (head.to_bytes(4, "little") + payload).ljust(size, b"\0") + f.word_of(head).to_bytes(8, "little")
    return bytes(data) + bytes(64)


def test_the_largest_handle_takes_no_more_room_than_another(bundle: Path) -> None:
    handle = 2**32 - 1
    tail = f.R_TAIL.pack(0, 2, 0, 0, 0) + handle.to_bytes(4, "little") + (1).to_bytes(4, "little")
    step = f.body(f.STEP_WIDE, 0).pack(0, 0, f.EMITS | f.HAS_TAIL, 0, 1, 10, 5, 0, -1, -1, 1)
    arrival = (f.ARRIVE, f.R_ARRIVE.pack(handle, 0, -1, -1) + b"r1")
    (bundle / "engine.spool").write_bytes(spool(arrival, (f.STEP_WIDE, step + tail)))
    assert sb.open(bundle).emissions.request.tolist() == [0]
