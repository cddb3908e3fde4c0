"""The post's raw logs, sound and hostile."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logfiles import GOLDEN, attempt, difference, refused

import stallbook.log
from stallbook.run import CAPTURED, EAGER, NEVER, NO_GRAPH, UNKNOWN

CONFIG = np.array(json.dumps({"rung": "baseline", "seed": 1}))


def arrays(**changes: Any) -> dict[str, Any]:
    """A small sound log, with changes."""
    sound = {
        "steps": [[0.001, 0.010, 0, 50, -1, 0, 0], [0.010, 0.020, 2, 0, 4, 1, 0], [0.020, 0.030, 9, 0, 0, 0, 1]],
        "segs": [[0, 0, 0.001, 0.002], [0, 2, 0.002, 0.009], [1, 1, 0.011, 0.012], [1, 3, 0.012, 0.019]],
        "gcs": [[0.0131, 0.0132, 2]],
        "emissions": [[7, 0.019, 1], [3, 0.019, 1], [7, 0.029, 2]],
        "evictions": [[3, 0.0195, np.nan], [7, 0.0195, 0.0205]],
        "requests": [[7, 0.0005, 50, 2, 0.019], [3, 0.0001, 40, 1, 0.019]],
        "wall": np.array(0.03),
        "config": CONFIG,
    }
    return {name: np.array(value) for name, value in (sound | changes).items() if value is not None}


def save(path: Path, **changes: Any) -> Path:
    np.savez_compressed(path, **arrays(**changes))
    return path


def test_a_log_of_the_post(tmp_path: Path) -> None:
    run = stallbook.log.open_run(save(tmp_path / "a.npz"))
    assert run.requests.names == ("3", "7")
    assert run.requests.arrive.tolist() == [100_000, 500_000]
    assert (run.requests.prompt_tokens.tolist(), run.requests.max_tokens.tolist()) == ([40, 50], [1, 2])
    assert set(run.requests.admit.tolist()) | set(run.requests.finish.tolist()) == {UNKNOWN}
    assert run.steps.graph.tolist() == [NO_GRAPH, CAPTURED, EAGER]
    assert run.steps.padded.tolist() == [-1, 4, -1]
    assert run.steps.kv_tokens.tolist() == [-1, -1, -1]
    assert run.steps.emit.tolist() == [UNKNOWN, 19_000_000, 29_000_000]
    assert [run.names[i] for i in run.segments.name] == ["tok", "prefill", "swap", "decode"]
    assert (run.pauses.t0.tolist(), run.pauses.generation.tolist()) == ([13_100_000], [2])
    assert (run.evictions.request.tolist(), run.evictions.t1.tolist()) == ([0, 1], [NEVER, 20_500_000])
    assert run.evictions.recompute.tolist() == [0, 0]
    assert (run.preemptions, run.wall_ns) == (1, 30_000_000)
    assert run.records == {"segments", "gc", "evictions", "graph"}
    assert run.config == {"rung": "baseline", "seed": 1}
    assert not run.members.known.any()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_the_kept_logs_of_the_post(path: Path) -> None:
    run = stallbook.log.open_run(path)
    with np.load(path) as raw:
        expected = json.loads(path.with_suffix("").with_suffix(".expected.json").read_text())
        assert len(run.emissions.step) == len(raw["emissions"]) == expected["tokens"]
        assert len(run.segments.t0) == len(raw["segs"])
        assert (len(run.requests.names), run.preemptions) == (expected["requests"], expected["preemptions"])
        assert np.count_nonzero(run.steps.graph == EAGER) == expected["eager_steps"]
        assert np.abs(run.steps.t0 - raw["steps"][:, 0] * 1e9).max() <= 0.5
    assert not set(run.notes) - {"emissions_in_eviction"}


def test_an_empty_log_of_the_post(tmp_path: Path) -> None:
    nothing = {name: np.array([]) for name in ("steps", "segs", "gcs", "emissions", "evictions", "requests")}
    run = stallbook.log.open_run(save(tmp_path / "a.npz", **nothing))
    assert len(run.steps.id) == len(run.emissions.step) == 0


def test_rounding_is_smoothed_and_nothing_more(tmp_path: Path) -> None:
    close = [[0, 0, 0.000999999, 0.002000002], [0, 2, 0.002, 0.010000001], [1, 3, 0.012, 0.019]]
    run = stallbook.log.open_run(save(tmp_path / "a.npz", segs=close))
    assert run.segments.t0.tolist() == [1_000_000, 2_000_002, 12_000_000]
    assert run.segments.t1.tolist() == [2_000_002, 10_000_000, 19_000_000]
    assert run.notes["rounded_edges"] == 3
    for segs, slug in (
        ([[0, 0, 0.000999997, 0.002]], "outside-step"),
        ([[0, 0, 0.002, 0.010000003]], "outside-step"),
        ([[0, 0, 0.001, 0.002000003], [0, 2, 0.002, 0.009]], "crossing"),
    ):
        error = refused(save(tmp_path / "a.npz", segs=segs))
        assert error.slug == slug
        assert "segs[" in error.where


BAD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no steps": ("foreign", "no array 'steps'", {"steps": None}),
    "no wall": ("foreign", "no array 'wall'", {"wall": None}),
    "pickles": ("foreign", "not of numbers", {"steps": np.array([{"a": 1}], dtype=object)}),
    "text": ("foreign", "not of numbers", {"gcs": np.array([["a", "b", "c"]])}),
    "a column short": ("foreign", "shape (1, 2)", {"gcs": [[1.0, 2.0]]}),
    "flat": ("foreign", "shape (3,)", {"gcs": [1.0, 2.0, 3.0]}),
    "deep": ("foreign", "shape", {"gcs": np.ones((1, 3, 2))}),
    "two walls": ("foreign", "not a single number", {"wall": [1.0, 2.0]}),
    "config no JSON": ("foreign", "not a JSON object", {"config": np.array("{")}),
    "config a list": ("foreign", "not a JSON object", {"config": np.array("[]")}),
    "config NaN": ("foreign", "not a JSON object", {"config": np.array('{"a": NaN}')}),
    "config empty": ("foreign", "not a JSON object", {"config": np.array([], dtype="U3")}),
    "config a number": ("foreign", "not of numbers", {"config": np.array(3.0)}),
    "NaN in a step": ("range", "nan", {"steps": [[np.nan, 0.01, 0, 0, -1, 0, 0]]}),
    "infinite pause": ("range", "inf", {"gcs": [[0.1, np.inf, 0]]}),
    "a time beyond all": ("range", "1e+30", {"emissions": [[7, 1e30, 1]]}),
    "NaN in an eviction's start": ("range", "nan", {"evictions": [[7, np.nan, np.nan]]}),
    "half a step": ("range", "0.5", {"segs": [[0.5, 0, 0.001, 0.002]]}),
    "unknown segment": ("range", "9.0", {"segs": [[0, 9, 0.001, 0.002]]}),
    "segment of no step": ("range", "3.0", {"segs": [[3, 0, 0.001, 0.002]]}),
    "negative batch": ("range", "-1.0", {"steps": [[0.001, 0.01, -1, 0, -1, 0, 0]]}),
    "graph below -1": ("range", "-2.0", {"steps": [[0.001, 0.01, 0, 0, -2, 0, 0]]}),
    "emission of no step": ("unknown-step", "no step 5", {"emissions": [[7, 0.02, 5]]}),
    "segment without steps": ("unknown-step", "", {"steps": np.empty((0, 7)), "segs": [[0, 0, 0.1, 0.2]]}),
    "padded too small": ("padded", "below", {"steps": [[0.001, 0.03, 9, 0, 4, 0, 0]] * 3}),
    "backwards": ("backwards", "before t0", {"gcs": [[0.2, 0.1, 0]]}),
    "request twice": ("request-twice", "'7' arrives twice", {"requests": [[7, 0, 1, 1, 1], [7, 0, 1, 1, 1]]}),
    "infinite wall": ("range", "inf", {"wall": np.array(np.inf)}),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_log_of_the_post_is_refused(case: str, tmp_path: Path) -> None:
    slug, says, changes = BAD[case]
    if case == "padded too small":
        changes = changes | {"steps": [[0.001 + i / 100, 0.01 + i / 100, 9, 0, 4, 0, 0] for i in range(3)]}
    error = refused(save(tmp_path / "a.npz", **changes))
    assert error.slug == slug, error
    assert says in error.what


def test_a_truncated_or_damaged_zip_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz")
    whole = path.read_bytes()
    for size in range(4, len(whole), 97):
        path.write_bytes(whole[:size])
        assert refused(path).slug == "truncated"
    for at in range(60, len(whole), 41):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        attempt(path)


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _zip(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(f"{name}.npy", content)
    return path


def test_an_array_larger_than_it_says_is_not_allocated(tmp_path: Path) -> None:
    entries = {name: _npy(array) for name, array in arrays().items()}
    entries["gcs"] = entries["gcs"].replace(b"(1, 3)", b"(999999999999, 3)").replace(b" " * 13 + b"\n", b"\n", 1)
    assert refused(_zip(tmp_path / "a.npz", entries)).slug == "truncated"
    entries["gcs"] = _npy(np.zeros((1, 3))).replace(b"(1, 3)", b"(True,)")
    assert refused(_zip(tmp_path / "a.npz", entries)).slug in {"truncated", "foreign"}
    entries["gcs"] = b"\x93NUMPY\x09\x00"
    assert refused(_zip(tmp_path / "a.npz", entries)).slug == "truncated"


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallbook.log.npz.LIMIT", 1 << 20)
    path = save(tmp_path / "a.npz", gcs=np.zeros((50_000, 3)))
    assert path.stat().st_size < 10_000
    error = refused(path)
    assert error.slug == "too-large"
    assert "1048576" in error.what


def test_a_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    assert refused(_zip(tmp_path / "a.docx", {"word": b"hello"})).slug == "foreign"


def test_overlapping_evictions_are_merged(tmp_path: Path) -> None:
    windows = [[7, 0.011, 0.015], [7, 0.014, 0.018], [7, 0.018, 0.019], [3, 0.011, np.nan], [3, 0.012, 0.013]]
    run = stallbook.log.open_run(save(tmp_path / "a.npz", evictions=windows))
    assert run.evictions.t0.tolist() == [11_000_000, 11_000_000, 18_000_000]
    assert run.evictions.t1.tolist() == [NEVER, 18_000_000, 19_000_000]
    assert run.notes["merged_evictions"] == 2


@pytest.mark.parametrize("path", [path for path in GOLDEN if "baseline" in path.name], ids=lambda path: path.name)
def test_a_log_of_the_post_survives_conversion(path: Path, tmp_path: Path) -> None:
    run = stallbook.log.open_run(path)
    stallbook.log.write(run, tmp_path / "a.jsonl.gz")
    assert not difference(run, stallbook.log.open_run(tmp_path / "a.jsonl.gz"))
