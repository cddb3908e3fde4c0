"""A spool that was cut or altered: a prefix of what was recorded, or one line that says what is wrong."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from recordings import read

from stallbook.errors import StallbookError
from stallbook.record import Recorder

Make = Callable[..., Recorder]


@pytest.fixture
def small(recorder: Make, log: Path) -> Path:
    with recorder() as rec:
        name = rec.name("decode")
        for i in range(8):
            handle = rec.arrive(f"r{i}")
            rec.begin()
            rec.join(handle)
            rec.enter(name, handle)
            rec.emit()
            rec.end(kv_tokens=i)
        rec.evict(0)
        rec.hold(1, "kv")
    return log


def test_cut_at_every_byte(small: Path) -> None:
    spool = small / "engine.spool"
    whole = spool.read_bytes()
    for size in range(len(whole) - 1, len(whole) - 700, -1):
        spool.write_bytes(whole[:size])
        run = read(small)
        assert run.steps.kv_tokens.tolist() == list(range(len(run.steps.id)))
        assert len(run.steps.id) <= 8


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes(small: Path, seed: int) -> None:
    spool = small / "engine.spool"
    whole = spool.read_bytes()
    chance = random.Random(seed)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        spool.write_bytes(data)
        try:
            run = read(small)
        except StallbookError:
            continue
        assert run.steps.kv_tokens.tolist() == list(range(len(run.steps.id)))


@pytest.mark.parametrize("page", [512, 4096])
def test_pages_that_a_power_loss_took(recorder: Make, log: Path, page: int) -> None:
    with recorder() as rec:
        rec.begin()
        for _ in range(300):
            rec.end(kv_tokens=rec._step)
            rec.begin()
    spool = log / "engine.spool"
    whole = spool.read_bytes()
    for start in range(page, len(whole), page):
        torn = whole[:start] + bytes(min(page, len(whole) - start)) + whole[start + page :]
        spool.write_bytes(torn)
        run = read(log)
        assert run.steps.kv_tokens.tolist() == list(range(len(run.steps.id)))
        left = sum(run.notes.get(slug, 0) for slug in ("corrupt_bytes", "torn_tail_bytes", "cut_bytes"))
        assert left or not any(torn[start:])


def test_the_rest_of_a_torn_record_is_counted(small: Path) -> None:
    spool = small / "engine.spool"
    whole = spool.read_bytes()
    steps = len(read(small).steps.id)
    spool.write_bytes(whole + bytes(8) + b"half a payload")
    run = read(small)
    assert run.notes["torn_tail_bytes"] == len(bytes(8) + b"half a payload")
    assert len(run.steps.id) == steps


@pytest.mark.parametrize(
    ("alter", "slug"),
    [
        (lambda log: (log / "manifest.json").unlink(), "no-manifest"),
        (lambda log: (log / "manifest.json").write_text("{"), "foreign"),
        (lambda log: (log / "manifest.json").write_text("[1]"), "foreign"),
        (lambda log: (log / "manifest.json").write_text('{"stallbook_log": 99}'), "version"),
        (lambda log: (log / "manifest.json").write_text('{"stallbook_log": 1}'), "foreign"),
        (lambda log: (log / "engine.spool").unlink(), "no-spool"),
        (lambda log: (log / "engine.spool").write_bytes(b"something else"), "foreign"),
        (lambda log: (log / "engine.spool").write_bytes(b"STALSP\xff\x00" + bytes(64)), "version"),
    ],
)
def test_one_line_for_what_cannot_be_read(small: Path, alter: Callable[[Path], object], slug: str) -> None:
    alter(small)
    with pytest.raises(StallbookError) as error:
        read(small)
    assert error.value.slug == slug
    assert str(small) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["engine", "records", "config", "facts", "baseline", "process", "wall_ns", "notes"])
def test_a_hostile_manifest(small: Path, key: str) -> None:
    file = small / "manifest.json"
    about = json.loads(file.read_text())
    for value in (7.5, [[1]], {"a": []}, "../../x"):
        file.write_text(json.dumps(about | {key: value}))
        with contextlib.suppress(StallbookError):
            read(small)


def test_a_spool_whose_process_wrote_nothing(small: Path) -> None:
    (small / "worker-0.spool").write_bytes(b"")
    (small / "worker-1.spool").write_bytes(bytes(4096))
    assert read(small).notes["empty_spools"] == 2


def test_a_spool_of_another_log_is_not_mistaken(small: Path, tmp_path: Path) -> None:
    """A second engine's spool beside the first is read as another process's: only its pauses count."""
    shutil.copy(small / "engine.spool", small / "engine-1.spool")
    assert len(read(small).steps.id) == 8
