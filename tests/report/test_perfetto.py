"""The timeline: read back, it says what the partition says, of every kind of log."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from golden_text import check
from trace_reader import packets, read

import stallbook as sb
from randomlog import random_log, to_jsonl
from stallbook.cli import main
from stallbook.errors import StallbookError
from stallbook.partition import Partition
from stallbook.report.perfetto import write
from stallbook.report.perfetto.lanes import Lane
from stallbook.report.perfetto.stream import Stream

pytest.importorskip("perfetto")
pytest.importorskip("pyarrow")

DATA = Path(__file__).parents[1] / "data"
LOGS = sorted([*(DATA / "scenarios").glob("*.jsonl"), DATA / "golden" / "baseline__s1.npz"])


def traced(p: Partition, folder: Path) -> Any:
    path = folder / "x.pftrace"
    write(p, path)
    return read(path)


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `gaps` as a slice tells it: what is 0 or not recorded is left out."""
    kept = {k: v for k, v in row.items() if k in ("step", "gap_ns", "tokens", "primary")}
    return kept | {k: v for k, v in row.items() if k.endswith("_ns") and v and k not in ("t0_ns", "t1_ns")}


def hold_the_gaps(p: Partition, trace: Any) -> None:
    slices = sorted(trace.of("gap"), key=lambda s: (trace.name_of(s), s.ts, s.args["step"]))
    rows = sorted(p.to_arrow().to_pylist(), key=lambda r: (r["request"], r["t0_ns"], r["step"]))
    shift = trace.of("run")[0].args["shift_ns"]
    assert [trace.name_of(s) for s in slices] == [r["request"] for r in rows]
    assert [(s.ts - shift, s.dur) for s in slices] == [(r["t0_ns"], r["gap_ns"]) for r in rows]
    assert [s.args for s in slices] == [told(r) for r in rows]
    assert [s.name for s in slices] == [r["primary"] for r in rows]
    assert all(s.depth == 0 for s in slices)


def hold_the_pieces(trace: Any) -> None:
    """Of each gap that is not clean: the pieces fill it, in order, and add up to its parts."""
    inside: dict[int, list[Any]] = defaultdict(list)
    for piece in trace.of("part"):
        inside[id(piece.parent)].append(piece)
    for gap in trace.of("gap"):
        pieces = inside.pop(id(gap), [])
        if gap.name == "clean":
            assert not pieces
            continue
        assert [p.ts for p in pieces] == [gap.ts, *(p.end for p in pieces[:-1])]
        assert pieces[-1].end == gap.end
        parts: dict[str, int] = defaultdict(int)
        for piece in pieces:
            assert sum(piece.args.values()) == piece.dur
            assert piece.args[f"{piece.name}_ns"] == max(piece.args.values())
            for key, ns in piece.args.items():
                parts[key] += ns
        assert parts == {
            k: v for k, v in gap.args.items() if k.endswith("_ns") and k != "gap_ns" and not k.startswith("context_")
        }
    assert not inside


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_every_gap_has_its_parts(path: Path, tmp_path: Path) -> None:
    p = sb.partition(sb.open(path))
    trace = traced(p, tmp_path)
    hold_the_gaps(p, trace)
    hold_the_pieces(trace)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", ["everything", "away", "async"])
def test_random_logs(kind: str, seed: int, tmp_path: Path) -> None:
    log = tmp_path / "x.jsonl"
    log.write_text(to_jsonl(random_log(random.Random(seed), kind)))
    p = sb.partition(sb.open(log))
    trace = traced(p, tmp_path)
    hold_the_gaps(p, trace)
    hold_the_pieces(trace)
    hold_the_lanes(p.run, trace)


def hold_the_lanes(run: sb.run.Run, trace: Any) -> None:
    """Every row of every table has its slice."""
    shift = trace.of("run")[0].args["shift_ns"]
    names = run.names

    def slices(category: str, below: str = "") -> list[tuple[int, int, str]]:
        return sorted((s.ts - shift, s.dur, s.name) for s in trace.of(category) if below in trace.path(s))

    s = run.segments
    for device, lane in enumerate(("engine/host", "engine/device")):
        rows = zip(*(c[s.device == device].tolist() for c in (s.t0, s.t1, s.name)), strict=True)
        assert slices("segment", lane) == sorted((a, b - a, names[n]) for a, b, n in rows)
    assert len(trace.of("step")) == len(run.steps.id)
    assert len(slices("pause")) == len(run.pauses.t0)
    assert {trace.path(s) for s in trace.of("pause")} == {f"pauses/{names[i]}" for i in run.pauses.process}
    assert len(slices("eviction")) == len(run.evictions.t0)
    assert len(slices("hold")) == len(run.holds.t0)
    assert len(trace.of("delivery")) == len(run.deliveries.t)


EVERYTHING = [
    {"stallbook": 1, "engine": "tiny 1", "records": ["segments", "gc", "evictions", "graph", "holds"],
     "baseline": {"fixed_ns": 2_000_000, "row_ns": 1_000_000, "kv_token_ns": 0}},
    {"e": "arrive", "request": "r1", "t": 1_000_000}, {"e": "admit", "request": "r1", "t": 2_000_000},
    {"e": "arrive", "request": "r2", "t": 1_500_000},
    {"e": "step", "id": 7, "t0": 2_000_000, "t1": 10_000_000, "decode_tokens": 0, "prefill_tokens": 9},
    {"e": "segment", "step": 7, "name": "prefill", "t0": 2_000_000, "t1": 9_000_000, "request": "r1"},
    {"e": "emit", "step": 7, "t": 9_000_000, "tokens": {"r1": 1}},
    {"e": "gc", "t0": 10_000_000, "t1": 13_000_000, "generation": 2, "process": "worker:0"},
    {"e": "evict", "request": "r1", "t": 11_000_000, "mode": "swap", "lost_tokens": 4},
    {"e": "readmit", "request": "r1", "t": 19_000_000},
    {"e": "hold", "request": "r1", "kind": "kv", "t0": 19_000_000, "t1": 20_000_000},
    {"e": "step", "id": 8, "t0": 20_000_000, "t1": 29_000_000, "decode_tokens": 1, "prefill_tokens": 0, "kv_tokens": 10,
     "graph": "eager", "padded": 1},
    {"e": "segment", "step": 8, "name": "launch", "t0": 20_000_000, "t1": 28_000_000},
    {"e": "segment", "step": 8, "name": "decode", "lane": "device", "t0": 21_000_000, "t1": 27_000_000},
    {"e": "emit", "step": 8, "t": 28_000_000, "tokens": {"r1": 2}},
    {"e": "deliver", "request": "r1", "t": 9_500_000, "tokens": 1, "boundary": "frontend"},
    {"e": "deliver", "request": "r1", "t": 9_900_000, "tokens": 1, "boundary": "client"},
    {"e": "deliver", "request": "r1", "t": 31_000_000, "tokens": 2, "boundary": "client"},
    {"e": "finish", "request": "r1", "t": 30_000_000},
    {"e": "evict", "request": "r2", "t": 30_000_000},
]  # fmt: skip


@pytest.fixture
def everything(tmp_path: Path) -> Partition:
    log = tmp_path / "all.jsonl"
    log.write_text(to_jsonl(EVERYTHING))  # type: ignore[arg-type]
    return sb.partition(sb.open(log))


def test_the_format_is_kept(everything: Partition, tmp_path: Path) -> None:
    """A golden file of every packet, so that a change of the format is seen."""
    from dataclasses import replace

    write(replace(everything, run=replace(everything.run, path="all.jsonl")), tmp_path / "x.pftrace")
    check("trace.txt", "".join(f"{packet}\n" for packet in packets(tmp_path / "x.pftrace")))


def test_flows_lead_from_the_emission_to_the_client(everything: Partition, tmp_path: Path) -> None:
    trace = traced(everything, tmp_path)
    steps = [(a.category, trace.name_of(a), a.end, trace.name_of(b), b.ts) for a, b in trace.arrows]
    assert steps == [
        ("ttft", "r1", 9_000_000, "frontend", 9_500_000),
        ("delivery", "frontend", 9_500_000, "client", 9_900_000),
        ("gap", "r1", 28_000_000, "client", 31_000_000),
    ]


def test_the_wait_for_the_first_token(everything: Partition, tmp_path: Path) -> None:
    (wait,) = traced(everything, tmp_path).of("ttft")
    assert (wait.name, wait.ts, wait.dur) == ("first token: prefill", 1_000_000, 8_000_000)
    assert wait.args == {"ttft_ns": 8_000_000, "primary": "prefill", "prefill_ns": 7_000_000, "queue_ns": 1_000_000}


def test_what_was_away(everything: Partition, tmp_path: Path) -> None:
    trace = traced(everything, tmp_path)
    away = [(trace.path(s), s.name, s.ts, s.end, s.args) for s in trace.slices if s.category in ("eviction", "hold")]
    assert away == [
        ("requests/r1/evicted or held", "evicted", 11_000_000, 19_000_000, {"recompute": 0, "lost_tokens": 4}),
        ("requests/r1/evicted or held", "held: kv", 19_000_000, 20_000_000, {}),
        ("requests/r2/evicted or held", "evicted", 30_000_000, 31_000_000, {"ended": "never"}),
    ]


def test_counters(everything: Partition, tmp_path: Path) -> None:
    trace = traced(everything, tmp_path)
    assert trace.counters == {
        "batch": [(2_000_000, 0), (20_000_000, 1)],
        "KV": [(20_000_000, 10)],
        "queue": [(1_000_000, 1), (1_500_000, 2), (2_000_000, 1)],
    }
    assert {t.name: t.unit for t in trace.tracks.values() if t.unit} == {
        "batch": "rows", "KV": "tokens", "queue": "requests",
    }  # fmt: skip


def test_what_was_not_recorded_is_named(tmp_path: Path) -> None:
    trace = traced(sb.partition(sb.open(DATA / "scenarios" / "S01.jsonl")), tmp_path)
    (run,) = trace.of("run")
    assert "os" in run.args["not_placed"].split(", ")
    assert "queue" not in trace.counters


def test_times_below_zero_are_shifted(tmp_path: Path) -> None:
    shifted = [{k: v - 20_000_000 if k in ("t", "t0", "t1") else v for k, v in e.items()} for e in EVERYTHING]
    (tmp_path / "x.jsonl").write_text(to_jsonl(shifted))
    p = sb.partition(sb.open(tmp_path / "x.jsonl"))
    trace = traced(p, tmp_path)
    (run,) = trace.of("run")
    assert (run.ts, run.args["shift_ns"]) == (0, 19_000_000)
    hold_the_gaps(p, trace)


def test_slices_that_cross_go_to_tracks_of_one_name(tmp_path: Path) -> None:
    with (tmp_path / "x.pftrace").open("wb") as file:
        stream = Stream(file, 0, 0)
        lane = Lane(stream, "host", stream.track("engine"))
        for t0, t1 in ((0, 10), (0, 4), (2, 12), (4, 4), (4, 10), (10, 11), (12, 15)):
            lane.slice(t0, t1, "x", "segment")
        lane.close()
        stream.flush()
    trace = read(tmp_path / "x.pftrace")
    assert [(s.ts, s.end, s.depth, s.track) for s in trace.slices] == [
        (0, 10, 0, 2), (0, 4, 1, 2), (2, 12, 0, 3), (4, 4, 1, 2), (4, 10, 1, 2), (10, 11, 0, 2), (12, 15, 0, 2),
    ]  # fmt: skip
    assert {trace.tracks[t].name for t in (2, 3)} == {"host"}


def long_log(steps: int) -> str:
    """Eight streams and a garbage collection every tenth step, so that there is something to tell of each gap."""
    events: list[dict[str, Any]] = [{"stallbook": 1, "engine": "tiny 1", "records": ["segments", "gc"]}]
    for i in range(steps):
        t = 20_000_000 * i
        events += [
            {"e": "step", "id": i, "t0": t, "t1": t + 19_000_000, "decode_tokens": 8},
            {"e": "segment", "step": i, "name": "decode", "t0": t, "t1": t + 11_000_000},
            {"e": "emit", "step": i, "t": t + 18_000_000, "tokens": {f"r{k}": 1 for k in range(8)}},
        ]
        if i % 2:
            events.append({"e": "gc", "t0": t + 11_000_000, "t1": t + 18_000_000, "generation": 2})
    return to_jsonl(events)


def peak(p: Partition, path: Path) -> int:
    """The most memory that writing a trace takes."""
    gc.collect()
    tracemalloc.start()
    write(p, path)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """Ten times the gaps, and a tenth of the trace's growth in memory at the most."""
    logs, sizes = [], []
    for steps in (400, 4_000):
        log, path = tmp_path / f"{steps}.jsonl", tmp_path / f"{steps}.pftrace"
        log.write_text(long_log(steps))
        logs.append((sb.partition(sb.open(log)), path))
        write(*logs[-1])  # what is computed once is there
        sizes.append(path.stat().st_size)
    assert sizes[1] > 9 * sizes[0]
    for _ in range(3):  # other threads of the test's process allocate, too
        small, large = (peak(p, path) for p, path in logs)
        if large - small < (sizes[1] - sizes[0]) / 10:
            return
    raise AssertionError((small, large, sizes))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = DATA / "scenarios" / "H05.jsonl", tmp_path / "x.perfetto-trace"
    assert main(["convert", str(log), str(out)]) == 0
    hold_the_gaps(sb.partition(sb.open(log)), read(out))
    before = out.read_bytes()
    assert main(["convert", str(log), str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["convert", str(log), str(out), "--rules", "post", "--force"]) == 0
    hold_the_gaps(sb.partition(sb.open(log), "post"), read(out))
    assert out.read_bytes() != before


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Stream, "count", fail)
    assert main(["convert", str(DATA / "scenarios" / "H05.jsonl"), str(tmp_path / "x.pftrace")]) == 2
    assert not list(tmp_path.iterdir())


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(StallbookError, match=r"stallbook\[perfetto\]"):
        write(sb.partition(sb.open(DATA / "scenarios" / "H05.jsonl")), tmp_path / "x.pftrace")


def test_progress_ends_where_it_said(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    p = sb.partition(sb.open(DATA / "scenarios" / "H05.jsonl"))
    write(p, tmp_path / "x.pftrace", lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_empty_log(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(to_jsonl(EVERYTHING[:1]))  # type: ignore[arg-type]
    trace = traced(sb.partition(sb.open(tmp_path / "x.jsonl")), tmp_path)
    assert {s.category for s in trace.slices} == {"run"}
