"""Any run, written as a native log, reads back as it was."""

from __future__ import annotations

import dataclasses
import os
import random
import stat
from pathlib import Path

import numpy as np
import pytest
from recordings import read

from randomlog import KINDS, random_log, to_jsonl
from stallbook.errors import StallbookError
from stallbook.log import open_run
from stallbook.log.bundle import write_bundle
from stallbook.run import Run

DATA = Path(__file__).parent.parent / "data"


def same(a: Run, b: Run) -> None:
    """Equal in every table and in all that describes them, but for the path."""
    for field in dataclasses.fields(Run):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if dataclasses.is_dataclass(x) and field.name != "baseline":
            for column in dataclasses.fields(x):
                p, q = getattr(x, column.name), getattr(y, column.name)
                where = f"{field.name}.{column.name}"
                assert np.array_equal(p, q) if isinstance(p, np.ndarray) else p == q, where
        elif field.name == "facts":
            assert dict(x).items() <= dict(y).items()
        elif field.name != "path":
            assert x == y, field.name


@pytest.mark.parametrize("name", ["golden/baseline__s1.npz", *(f"scenarios/{s}.jsonl" for s in ("S01", "S05", "H01"))])
def test_logs_at_hand(tmp_path: Path, name: str) -> None:
    run = open_run(DATA / name)
    write_bundle(run, tmp_path / "x.stall")
    same(run, read(tmp_path / "x.stall"))


@pytest.mark.parametrize("kind", KINDS)
def test_random_logs(tmp_path: Path, kind: str) -> None:
    for seed in range(25):
        (tmp_path / "x.jsonl").write_text(to_jsonl(random_log(random.Random(seed), kind)))
        run = open_run(tmp_path / "x.jsonl")
        write_bundle(run, tmp_path / "x.stall", force=True)
        same(run, read(tmp_path / "x.stall"))


def test_not_over_what_is_there(tmp_path: Path) -> None:
    run = open_run(DATA / "scenarios/S01.jsonl")
    log = tmp_path / "x.stall"
    write_bundle(run, log)
    with pytest.raises(StallbookError, match="exists already"):
        write_bundle(run, log)
    (tmp_path / "photos.stall").mkdir()
    with pytest.raises(StallbookError, match="no log"):
        write_bundle(run, tmp_path / "photos.stall", force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StallbookError):
        write_bundle(run, tmp_path / "file" / "x.stall")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "photos.stall", "x.stall"]
    assert stat.S_IMODE(log.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["notes.txt", "mine.spool", ".manifest.json.bak", "sub", "link.spool"])
def test_what_is_not_ours_is_not_deleted(tmp_path: Path, name: str) -> None:
    run = open_run(DATA / "scenarios/S01.jsonl")
    log = tmp_path / "x.stall"
    write_bundle(run, log)
    if name == "sub":
        (log / name).mkdir()
    elif name == "link.spool":
        (log / name).symlink_to(log / "engine.spool")
    else:
        (log / name).write_text("years of work")
    with pytest.raises(StallbookError, match=name):
        write_bundle(run, log, force=True)
    assert os.path.lexists(log / name)


def test_what_is_ours_is_replaced(tmp_path: Path) -> None:
    run = open_run(DATA / "scenarios/S01.jsonl")
    log = tmp_path / "x.stall"
    write_bundle(run, log)
    (log / "worker-0.spool").write_bytes(b"")
    (log / ".manifest.json.123").write_text("{")
    write_bundle(run, log, force=True)
    assert sorted(entry.name for entry in log.iterdir()) == ["engine.spool", "manifest.json"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.stall"]


def test_no_folder_is_made_on_the_way(tmp_path: Path) -> None:
    run = open_run(DATA / "scenarios/S01.jsonl")
    with pytest.raises(StallbookError, match="create the folder first"):
        write_bundle(run, tmp_path / "nodir" / "x.stall")
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_log_is_not_replaced(tmp_path: Path) -> None:
    run = open_run(DATA / "scenarios/S01.jsonl")
    write_bundle(run, tmp_path / "x.stall")
    (tmp_path / "y.stall").symlink_to(tmp_path / "x.stall")
    with pytest.raises(StallbookError, match="no log"):
        write_bundle(run, tmp_path / "y.stall", force=True)
    assert (tmp_path / "x.stall" / "engine.spool").exists()
