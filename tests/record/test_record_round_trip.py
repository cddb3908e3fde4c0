"""What an engine told the recorder is what a reader finds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recordings import Clock, read

from stallbook.log import open_run, write
from stallbook.log.bundle import read_bundle
from stallbook.record import NullRecorder, Recorder
from stallbook.run import BY_BUDGET, BY_KV, BY_SEQS, NEVER, NOT_BLOCKED, UNKNOWN, Run

Make = Callable[..., Recorder]


def emissions(run: Run) -> set[tuple[str, int, int]]:
    table = run.emissions
    return {
        (run.requests.names[r], int(run.steps.id[s]), int(n))
        for r, s, n in zip(table.request, table.step, table.tokens, strict=True)
    }


def members(run: Run) -> list[list[str]]:
    table = run.members
    return [
        [run.requests.names[r] for r in table.request[table.start[i] : table.start[i + 1]]]
        for i in range(len(run.steps.id))
    ]


def segments(run: Run) -> list[tuple[int, str, int, int]]:
    table = run.segments
    rows = zip(table.step, table.name, table.t0, table.t1, strict=True)
    return [(int(s), run.names[n], int(t0), int(t1)) for s, n, t0, t1 in rows]


def test_a_step_with_everything(recorder: Make, log: Path) -> None:
    with recorder(config={"batch": 4}) as rec:
        sched, decode = rec.name("sched"), rec.name("decode")
        assert rec.name("sched") == sched
        a = rec.arrive("a", prompt_tokens=7, max_tokens=9, t=100)
        b = rec.arrive("b", t=110)
        rec.admit(a, t=120)
        assert rec.begin(t=200) == 200
        rec.join(a)
        rec.enter(sched, t=210)
        rec.enter(decode, a, t=220)
        rec.leave(t=230)
        assert rec.emit(t=231) == 231
        rec.prefill(16)
        rec.member(b)
        rec.enter(sched, t=240)
        rec.end(1, padded=8, kv_tokens=77, t=250)
    run = read(log)
    assert segments(run) == [(0, "sched", 210, 220), (0, "decode", 220, 230), (0, "sched", 240, 250)]
    assert [run.requests.names[i] if i >= 0 else None for i in run.segments.request] == [None, "a", None]
    steps = run.steps
    assert (steps.t0[0], steps.t1[0], steps.emit[0]) == (200, 250, 231)
    assert (steps.graph[0], steps.padded[0], steps.decode_tokens[0]) == (1, 8, 1)
    assert (steps.prefill_tokens[0], steps.kv_tokens[0], steps.cpu[0], steps.run_delay[0]) == (16, 77, -1, -1)
    assert emissions(run) == {("a", 0, 1)}
    assert members(run) == [["a", "b"]]
    assert run.requests.arrive.tolist() == [100, 110]
    assert run.requests.admit.tolist() == [120, UNKNOWN]
    assert run.requests.prompt_tokens.tolist() == [7, -1]
    assert (run.engine, run.config, dict(run.notes)) == ("test 1", {"batch": 4}, {})
    assert "kv_tokens" in run.records
    assert "os" not in run.records


def test_joins_and_parts_move_the_batch(recorder: Make, log: Path) -> None:
    rec = recorder()
    a, b, c = (rec.arrive(x) for x in "abc")
    rec.join(a)  # before the first step
    rec.begin()
    rec.join(b)  # before the emission: in it
    rec.emit()
    rec.part(a)  # after it: not in the next
    rec.join(c)
    rec.end()
    rec.begin()  # a pass that finds nothing to do
    rec.drop()
    rec.begin()
    rec.emit()
    rec.end()
    rec.begin()  # evicted before the emission; parts by itself
    rec.evict(b, recompute=True, lost_tokens=5)
    rec.join(c)  # twice is once
    rec.emit()
    rec.finish(c)
    rec.end()
    rec.begin()
    rec.end()  # no forward pass
    rec.close()
    run = read(log)
    assert emissions(run) == {("a", 0, 1), ("b", 0, 1), ("b", 1, 1), ("c", 1, 1), ("c", 2, 1)}
    assert run.steps.decode_tokens.tolist() == [2, 2, 1, 0]
    assert members(run) == [["a", "b"], ["b", "c"], ["c"], []]
    assert run.evictions.recompute.tolist() == [1]
    assert run.evictions.lost_tokens.tolist() == [5]
    assert run.evictions.t1.tolist() == [NEVER]


def test_explicit_emissions_and_windows(recorder: Make, log: Path) -> None:
    with recorder() as rec:
        a, b = rec.arrive("a"), rec.arrive("b")
        forward = rec.name("decode")
        rec.begin(step=41)
        rec.emit_some([(a, 3), (b, 1)])
        rec.window(forward, 1_100, 9_000, device=True, request=b, run_delay=4)
        rec.end(t=2_000)
        rec.begin()
        rec.emit_some([])
        rec.end(members=False)
    run = read(log)
    assert emissions(run) == {("a", 41, 3), ("b", 41, 1)}
    assert run.steps.id.tolist() == [41, 42]
    assert members(run) == [["a", "b"], []]
    assert run.members.known.tolist() == [1, 0]
    assert (run.segments.device[0], run.segments.run_delay[0], run.segments.t1[0]) == (1, 4, 9_000)
    assert run.requests.names[run.segments.request[0]] == "b"


def test_the_other_events(recorder: Make, log: Path) -> None:
    with recorder() as rec:
        a = rec.arrive("a", t=0)
        rec.evict(a, t=10, recompute=False)
        rec.readmit(a, t=20)
        rec.hold(a, "kv", t=30)
        rec.release(a, "kv", t=40)
        rec.hold(a, "lora", t=50)
        rec.deliver(a, 2, 1, t=60)
        rec.probe(55, t=70)
        rec.restart(t=80)
        rec.pause(90, 95, 2, "worker:0")
        rec.fact("rate", 9.5)
        rec.release(a, "grammar", t=96)
        rec.finish(a, t=99)
    run = read(log)
    assert (run.evictions.t0[0], run.evictions.t1[0]) == (10, 20)
    holds = zip(run.holds.kind, run.holds.t0, run.holds.t1, strict=True)
    assert [(run.names[k], int(t0), int(t1)) for k, t0, t1 in holds] == [("kv", 30, 40), ("lora", 50, NEVER)]
    assert (run.deliveries.tokens[0], run.deliveries.boundary[0], run.deliveries.t[0]) == (2, 1, 60)
    assert (run.probes.t[0], run.probes.ns[0]) == (70, 55)
    assert run.preemptions == 2
    assert (run.names[run.pauses.process[0]], run.pauses.generation[0]) == ("worker:0", 2)
    assert run.facts["rate"] == 9.5
    assert run.notes["releases_of_nothing"] == 1
    assert run.requests.finish.tolist() == [99]


@pytest.mark.parametrize("big", ["time", "id", "tokens", "segments"])
def test_what_does_not_fit_the_usual_record_takes_a_wider_one(recorder: Make, log: Path, big: str) -> None:
    count = 200 if big == "segments" else 2
    with recorder() as rec:
        a, name = rec.arrive("a", t=0), rec.name("decode")
        rec.join(a)
        rec.begin(2**40 if big == "id" else 5, t=100)
        for i in range(count):
            rec.enter(name, t=200 + i)
        rec.emit(t=2**45 if big == "time" else 1_000)
        rec.end(kv_tokens=2**40 if big == "tokens" else 3, t=2**45 + 5 if big == "time" else 2_000)
        assert (rec.errors, rec.dropped) == (0, 0)
        rec.begin(t=2**50)
        rec.end(t=2**50 + 1)
    run = read(log)
    assert len(run.segments.t0) == count
    assert run.steps.t1[0] == (2**45 + 5 if big == "time" else 2_000)
    assert run.steps.kv_tokens[0] == (2**40 if big == "tokens" else 3)
    assert emissions(run) == {("a", 2**40 if big == "id" else 5, 1)}
    assert run.steps.id[1] == run.steps.id[0] + 1


def test_many_steps_over_many_chunks(recorder: Make, log: Path) -> None:
    steps = 6_000
    with recorder() as rec:
        names = [rec.name(f"s{i}") for i in range(6)]
        handles = [rec.arrive(f"r{i}") for i in range(3)]
        for handle in handles:
            rec.join(handle)
        for _ in range(steps):
            rec.begin()
            for name in names:
                rec.enter(name)
            rec.emit()
            rec.end()
    run = read(log)
    assert (log / "engine.spool").stat().st_size > 2 * 2**18
    assert run.steps.id.tolist() == list(range(steps))
    assert len(run.segments.t0) == 6 * steps
    assert len(run.emissions.step) == 3 * steps
    lengths = (run.segments.t1 - run.segments.t0).reshape(-1, 6)
    assert np.all(lengths == [10, 10, 10, 10, 10, 20])  # the last one holds the emission


def test_readable_while_written(recorder: Make, log: Path) -> None:
    rec = recorder()
    rec.join(rec.arrive("a"))
    for done in range(4):
        assert len(read(log).steps.id) == done if done else True
        rec.begin()
        rec.emit()
        rec.end()
    rec.close()


def test_prompts_and_what_blocked_admission(recorder: Make, log: Path, tmp_path: Path) -> None:
    with recorder() as rec:
        a, b = rec.arrive("a", max_tokens=9, t=1), rec.arrive("b", prompt_tokens=3, t=2)
        rec.prompt(a, 40)
        for blocked in (-1, 0, 1, 2, 3):
            rec.begin()
            if blocked == 2:
                rec.join(b)
            rec.emit()
            rec.end(blocked=blocked)
    run = read(log)
    assert run.requests.prompt_tokens.tolist() == [40, 3]
    assert run.steps.blocked.tolist() == [-1, NOT_BLOCKED, BY_KV, BY_SEQS, BY_BUDGET]
    for suffix in ("jsonl", "stall"):
        write(run, tmp_path / f"copy.{suffix}")
        again = open_run(tmp_path / f"copy.{suffix}")
        assert again.steps.blocked.tolist() == run.steps.blocked.tolist()
        assert again.requests.prompt_tokens.tolist() == [40, 3]


def test_another_process_adds_its_pauses(recorder: Make, log: Path, clock: Clock) -> None:
    with recorder() as rec, recorder(process="worker:0") as worker:
        rec.begin(t=0)
        rec.end(t=50)
        worker.pause(10, 20, 1)
        worker.fact("pid", 7)
        worker.begin(t=5)
        worker.enter(worker.name("forward"), t=10)
        worker.end(t=40)
    run = read(log)
    assert [run.names[p] for p in run.pauses.process] == ["worker:0"]
    assert len(run.steps.id) == 1
    assert segments(run) == [(0, "forward", 10, 40)]
    assert run.facts["worker:0.pid"] == 7


def test_the_manifest_says_what_the_log_is(recorder: Make, log: Path) -> None:
    rec = recorder(records=["segments", "gc", "os"], extra={"note": 1})
    manifest = json.loads((log / "manifest.json").read_text())
    assert manifest["records"] == ["segments"]  # neither collections nor OS counters are recorded here
    assert manifest["stallbook_log"] == 1
    assert "closed" not in manifest
    rec.fact("seed", 3)
    assert json.loads((log / "manifest.json").read_text())["facts"] == {"seed": 3}
    rec.close()
    rec.close()
    assert json.loads((log / "manifest.json").read_text())["closed"]["dropped"] == 0
    assert not list(log.glob(".*"))


def test_private_to_its_owner(recorder: Make, log: Path) -> None:
    recorder().close()
    assert log.stat().st_mode & 0o777 == 0o700
    assert {f.stat().st_mode & 0o777 for f in log.iterdir()} == {0o600}


def test_standard_library_only() -> None:
    code = "import sys, stallbook.record; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_twin_that_records_nothing_has_every_method() -> None:
    public = {name for name in dir(Recorder) if not name.startswith("_")} - {"os_counters"}
    assert public <= set(dir(NullRecorder))
    with NullRecorder("nowhere", engine="x") as rec:
        assert rec.begin() <= rec.emit()
        assert [rec.arrive("a"), rec.arrive("b")] == [0, 1]
        rec.end(1, 2, kv_tokens=3)


def test_draft_has_no_prompt(recorder: Make, log: Path) -> None:
    """No method takes a text but names, ids and facts."""
    recorder().close()
    assert read_bundle(log).request_names == ()
