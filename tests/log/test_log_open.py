"""Files of every kind: opened, or refused in one line that says what to do."""

from __future__ import annotations

import gzip
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from logfiles import GOLDEN, SCENARIOS, difference, emit, refused, save, step

import stallbook
import stallbook.log
from stallbook.errors import StallbookError


@pytest.mark.parametrize("path", [*SCENARIOS, *GOLDEN], ids=lambda path: path.name)
def test_every_sample_opens(path: Path) -> None:
    run = stallbook.open(path)
    assert run.path == str(path)
    assert len(run.emissions.step) >= 2
    assert set(run.notes) <= {"emissions_in_eviction", "merged_evictions", "empty_deliveries"}


FOREIGN = {
    "a.parquet": b"PAR1\x15\x04",
    "a.npy": b"\x93NUMPY\x01\0v\0{",
    "a.png": b"\x89PNG\r\n\x1a\n",
    "notes.txt": b"Dear diary,\n",
    "a.json": b"[1, 2]",
    "a.bin": bytes(range(256)),
    "utf16.jsonl": '{"stallbook": 1}'.encode("utf-16"),
    "a.zst": b"\x28\xb5\x2f\xfd\x00",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FOREIGN[name])
    assert refused(tmp_path / name).slug == "foreign"


def test_empty_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert refused(tmp_path / "a.jsonl").slug == "empty"
    (tmp_path / "blank.jsonl").write_text("\n\n  \n{")
    assert refused(tmp_path / "blank.jsonl").slug == "format"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "missing.jsonl").slug == "missing"
    assert refused(Path("/dev/null")).slug == "not-a-file"
    assert refused(tmp_path).remedy
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe").slug == "not-a-file"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        assert refused(tmp_path / "door").slug == "not-a-file"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert refused(tmp_path / "loop").slug == "unreadable"
    with pytest.raises(StallbookError, match="no path of a file"):
        stallbook.open("a\0b")


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "run.jsonl")

    def forbid(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbid)  # chmod does not stop root
    assert refused(path).slug == "permission"


def test_gzip_is_read_whatever_its_name(tmp_path: Path) -> None:
    text = save(tmp_path / "run.jsonl", step(0, 0, 9), emit(0, 5)).read_bytes()
    path = tmp_path / "run.log"
    path.write_bytes(gzip.compress(text))
    assert len(stallbook.open(path).emissions.step) == 1
    path.write_bytes(gzip.compress(text)[:-12])
    assert refused(path).slug == "truncated"
    path.write_bytes(gzip.compress(text)[:20] + b"\0" * 40)
    assert refused(path).slug == "truncated"


@pytest.mark.parametrize("path", SCENARIOS[:6], ids=lambda path: path.name)
def test_the_size_of_a_batch_does_not_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stallbook.open(path)
    monkeypatch.setattr("stallbook.log.jsonl_events._FLUSH", 150)
    assert not difference(whole, stallbook.open(path))


def test_windows_line_ends_blank_lines_and_a_bom_are_read(tmp_path: Path) -> None:
    path = save(tmp_path / "run.jsonl", step(0, 0, 9), "", emit(0, 5))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(stallbook.open(path).emissions.step) == 1
    path.write_bytes(path.read_bytes() + b"oops\r\n")
    assert refused(path).where.endswith(":5")


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallbook.log.jsonl._MAX_LINE", 1 << 20)
    path = save(tmp_path / "run.jsonl", " " * (1 << 20))
    assert refused(path).where.endswith(":2")


def test_the_package_keeps_its_names() -> None:
    import stallbook.partition  # binds no module over the function
    import stallbook.report

    assert callable(stallbook.partition)
    assert callable(stallbook.report)
    assert set(stallbook.__all__) <= {name for name in stallbook.__all__ if getattr(stallbook, name)}
    assert np.array_equal(stallbook.open(SCENARIOS[0]).steps.id, stallbook.log.open(SCENARIOS[0]).steps.id)
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        _ = stallbook.nothing_of_that_name
