"""llama.cpp's verbose log: real ones, made ones read again, and whatever can be wrong with one."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_made import FLAVOURS, Made, served
from logfiles import attempt, difference, refused

import stallbook as sb
import stallbook.log
from stallbook.client import join
from stallbook.run import UNKNOWN, Run

DATA = Path(__file__).parents[1] / "data" / "llama"
NAMES = ("four", "mixed", "full")
US = 1000


@pytest.fixture(scope="module", params=NAMES)
def recorded(request: pytest.FixtureRequest) -> tuple[str, Run]:
    return request.param, sb.open(DATA / f"{request.param}.log.gz")


def summary(run: Run) -> dict[str, Any]:
    """What a golden file holds: the tables' sizes and sums, and what each request got."""
    p = sb.partition(run)
    s, r = run.steps, run.requests
    parts = dict(zip(p.causes, p.parts().sum(axis=0).tolist(), strict=True))
    got = {name: [int(run.emissions.tokens[run.emissions.request == i].sum()), int(r.prompt_tokens[i]),
                  int(r.max_tokens[i]), int(r.finish[i] != UNKNOWN)] for i, name in enumerate(r.names)}  # fmt: skip
    return {
        "engine": run.engine, "config": dict(run.config), "records": sorted(run.records), "notes": dict(run.notes),
        "failed": run.facts.get("failed", {}), "steps": len(s.id), "emitting": int((s.emit != UNKNOWN).sum()),
        "decode_tokens": int(s.decode_tokens.sum()), "prefill_tokens": s.prefill_tokens[s.prefill_tokens != 0].tolist(),
        "gaps": len(p.gaps), "parts_ns": {cause: ns for cause, ns in parts.items() if ns}, "requests": got,
    }  # fmt: skip


def test_recorded_logs_read_as_they_did(recorded: tuple[str, Run]) -> None:
    name, run = recorded
    golden = DATA / f"{name}.expected.json"
    told = json.dumps(summary(run), indent=1) + "\n"
    if os.environ.get("STALLBOOK_UPDATE_GOLDEN"):
        golden.write_text(told, encoding="utf-8")
    assert told == golden.read_text(encoding="utf-8")


def test_every_gap_of_a_recorded_log_is_exact_and_explained(recorded: tuple[str, Run]) -> None:
    p = sb.partition(recorded[1])
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
    assert p.reconcile.gaps_skipping == 0
    gaps = (p.gaps.t1 - p.gaps.t0).sum()
    assert p.parts()[:, p.causes.index("residual")].sum() <= 0.01 * gaps


def test_gaps_are_those_of_the_servers_own_timings(recorded: tuple[str, Run]) -> None:
    """At the frontend, to the microseconds between a token's time and its message; the engine's to the sampling."""
    name, run = recorded
    served = join(run, DATA / f"{name}.sse.gz")
    told = served.facts["client"]
    assert told["matched"] == told["requests"] == len(run.requests.names)
    assert told["log_after_server_ns"]["least"] >= 0
    assert told["log_after_server_ns"]["median"] <= 10 * US
    assert told["log_after_server_ns"]["most"] <= 400 * US
    for (request, ours), (again, theirs) in zip(handed(run), handed(served), strict=True):
        assert request == again
        off = np.abs(np.diff(ours) - np.diff(theirs))
        assert off.max(initial=0) <= 400 * US
        assert np.median(off) <= 10 * US
    sampling = np.zeros(len(run.steps.id), dtype=np.int64)
    named = run.segments.name == run.names.index("sample")
    np.add.at(sampling, run.segments.step[named], (run.segments.t1 - run.segments.t0)[named])
    theirs = dict(handed(served))
    for row in range(len(run.requests.names)):
        steps = run.emissions.step[run.emissions.request == row]
        off = np.abs(np.diff(run.steps.emit[steps]) - np.diff(theirs[row]))
        assert (off <= np.maximum(sampling[steps[1:]], sampling[steps[:-1]])).all()


def handed(run: Run) -> list[tuple[int, Any]]:
    """When each token was handed on, by request."""
    d = run.deliveries
    return [(row, d.t[d.request == row]) for row in range(len(run.requests.names))]


def test_what_a_log_cannot_place_is_not_zero(recorded: tuple[str, Run]) -> None:
    told = sb.partition(recorded[1]).abilities
    assert {c for c, how in told.items() if how == "not recorded"} == {"graph", "os", "slow", "pad", "output"}
    assert {told[c] for c in ("prefill", "preempt", "gc", "tok", "fwd", "unscheduled", "sched", "sample", "queue")} == {
        "placed"
    }


def test_a_full_cache_shows_as_it_is() -> None:
    run = sb.open(DATA / "full.log.gz")
    assert run.notes["kv_full_retries"] == 6
    assert run.notes["failed_requests"] == sum(run.facts["failed"].values()) == 4
    assert len(run.evictions.request) == 0
    assert "kv" in run.names
    text = str(sb.report(run))
    assert "failed requests: 4" in text
    assert "kv full retries: 6" in text


@pytest.mark.parametrize("suffix", ["stall", "jsonl"])
def test_a_converted_log_is_the_same_run(recorded: tuple[str, Run], suffix: str, tmp_path: Path) -> None:
    stallbook.log.write(recorded[1], tmp_path / f"a.{suffix}")
    again = sb.open(tmp_path / f"a.{suffix}")
    assert not difference(recorded[1], again, ignore=frozenset({"path", "facts"}))
    assert again.facts["format"] == "llama.cpp log"
    assert again.facts.get("failed") == recorded[1].facts.get("failed")


def told_of(run: Run) -> tuple[list[tuple[int, ...]], dict[str, list[int]], dict[str, list[int]]]:
    """A run in the words of `llama_made.Told`, in microseconds."""
    s, e, d, names = run.steps, run.emissions, run.deliveries, run.requests.names
    emit = np.where(s.emit == UNKNOWN, -US, s.emit)
    steps = list(zip(*((c // US).tolist() for c in (s.t0, s.t1, emit)), s.decode_tokens.tolist(),
                     s.prefill_tokens.tolist(), strict=True))  # fmt: skip
    tokens = {n: (s.emit[e.step[e.request == i]] // US).tolist() for i, n in enumerate(names)}
    return steps, tokens, {n: (d.t[d.request == i] // US).tolist() for i, n in enumerate(names)}


@given(
    seed=st.integers(0, 2**32),
    flavour=st.sampled_from(FLAVOURS),
    text=st.text(max_size=8),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_made_log_is_read_as_it_was_made(seed: int, flavour: str, text: str, tmp_path: Path) -> None:
    made = served(random.Random(seed), flavour, text.encode(errors="replace").decode())
    run = sb.open(made.write(tmp_path / "server.txt"))
    assert told_of(run) == (made.told.steps, made.told.tokens, made.told.handed)
    assert dict(zip(run.requests.names, run.requests.prompt_tokens.tolist(), strict=True)) == made.told.prompts
    assert set(run.notes) <= {"kv_full_retries", "kv_full_purged_slots"}
    p = sb.partition(run)
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)


def test_passes_over_parts_of_a_batch_are_steps(tmp_path: Path) -> None:
    """No room for the whole: half as many tokens at a time. The first pass brings one slot's token only."""
    made = Made()
    made.arrive(4, 9)
    made.arrive(4, 9)
    made.launch()
    made.step(64)
    made.say("srv", "update_slots", "posting NEXT_RESPONSE")
    for task in (0, 1):
        told = "slot decode token, id=7, n_ctx = 4096, n_tokens = 4, truncated = 0"
        made.say("slot", "handle_last_", f"id {task:2} | task {task} | {told}")
    made.say("srv", "decode", "n_batch (effective) = 2, off = 0")
    made.say("que", "yield_to_que", "yielding to queue")
    made.say("que", "yield_to_que", "done yielding to queue", after=500)
    failed = "failed to find free space in the KV cache, retrying with smaller batch size, off = 0, n_batch = 1"
    made.say("srv", "decode", failed, "W", after=100)
    emitted = []
    for task in (0, 1):
        made.say("srv", "decode", f"n_batch (effective) = 1, off = {task}")
        made.say("que", "yield_to_que", "yielding to queue")
        emitted.append(made.say("que", "yield_to_que", "done yielding to queue", after=2000))
        made.say("res", "send", f"sending result for task id = {task}", after=40)
        made.say("slot", "process_toke", f"id {task:2} | task {task} | n_gen = 2, n_remaining = 7, next token: 1 'x'")
    made.idle()
    run = sb.open(made.write(tmp_path / "a"))
    assert (run.steps.emit[1:] // US).tolist() == emitted
    assert run.steps.decode_tokens.tolist() == [0, 1, 1]
    edges = itertools.pairwise(run.members.start.tolist())
    assert [run.members.request[a:b].tolist() for a, b in edges] == [[0, 1], [0], [1]]
    lengths = run.segments.t1 - run.segments.t0
    named = {name: int(lengths[run.segments.name == i].sum()) // US for i, name in enumerate(run.names)}
    assert named["kv"] == 3 + 500 + 100 + 3
    p = sb.partition(run)
    assert p.reconcile.max_error_ns == 0
    assert p.parts()[:, p.causes.index("other:kv")].tolist() == [named["kv"] * US, 0]
    assert p.parts()[1, p.causes.index("unscheduled")] == (emitted[0] - int(run.steps.emit[0]) // US) * US


def test_bytes_that_are_no_character_yet_are_handed_on_with_the_next_token(tmp_path: Path) -> None:
    made = Made()
    made.arrive(4, 3)
    made.launch()
    for _ in range(3):
        made.step(64)
    made.idle()
    sends = [i for i, line in enumerate(made.lines) if "sending result" in line]
    del made.lines[sends[1]]
    run = sb.open(made.write(tmp_path / "a"))
    assert run.deliveries.tokens.tolist() == [1, 2]
    assert run.emissions.tokens.tolist() == [1, 1, 1]


def test_colours_and_gzip_change_nothing(tmp_path: Path) -> None:
    plain, painted = Made(), Made(colour=True)
    for made in (plain, painted):
        made.arrive(5, 4)
        made.launch()
        for _ in range(4):
            made.step(64)
        made.idle()
    run = sb.open(plain.write(tmp_path / "a"))
    assert run.engine == "llama.cpp b11549"
    assert run.config == {"parallel": 4, "n_ctx_slot": 4096, "kv_unified": True}
    assert not difference(run, sb.open(painted.write(tmp_path / "b")))
    assert not difference(run, sb.open(plain.write(tmp_path / "c.gz")))


@pytest.mark.parametrize("seed", range(3))
def test_a_log_that_was_cut_off_opens(seed: int, tmp_path: Path) -> None:
    """As SIGKILL leaves it: anywhere in a line. What was whole is there."""
    made = served(random.Random(seed))
    data = made.write(tmp_path / "whole").read_bytes()
    whole = sb.open(tmp_path / "whole")
    first = data.index(b"next token")
    rng, path = random.Random(seed), tmp_path / "cut"
    for _ in range(40):
        cut = rng.randrange(data.index(b"\n", first) + 1, len(data))
        path.write_bytes(data[:cut])
        run = sb.open(path)
        tail = cut - 1 - data.rfind(b"\n", 0, cut)
        assert run.notes.get("torn_tail_bytes", 0) == tail
        assert int(run.emissions.tokens.sum()) <= int(whole.emissions.tokens.sum())
        for name, times in told_of(run)[1].items():
            assert times == told_of(whole)[1][name][: len(times)]


@pytest.mark.parametrize("seed", range(4))
def test_garbled_lines_are_counted_and_cost_no_more_than_themselves(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    original = (gzip.decompress((DATA / "mixed.log.gz").read_bytes())).splitlines(keepends=True)
    stamped = [
        i for i, line in enumerate(original) if re.match(rb"\d+\.\d\d\.\d{3}\.\d{3} [DI] (srv|slot|que|res) ", line)
    ]
    path, opened, counted = tmp_path / "server.log", 0, 0
    for _ in range(25):
        lines = list(original)
        for i in rng.sample(stamped, 5):
            cut, other = rng.randrange(1, len(lines[i])), lines[rng.choice(stamped)]
            match rng.randrange(4):
                case 0:  # two writers at once
                    lines[i] = lines[i][:cut] + other + lines[i][cut:]
                case 1:
                    lines[i] = lines[i][:cut] + b"\n"
                case 2:
                    lines[i] = bytes(rng.randrange(256) for _ in range(20)).replace(b"\n", b" ") + lines[i][cut:]
                case 3:
                    lines[i] = other
        path.write_bytes(b"".join(lines))
        run = attempt(path)
        assert isinstance(run, Run), run
        opened += 1
        counted += run.notes.get("garbled_lines", 0) > 0
        p = sb.partition(run)
        assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
        assert abs(int(run.emissions.tokens.sum()) - 140) <= 10
    assert opened == 25
    assert counted > 15


def test_lines_that_tell_nothing_new_are_not_garbled() -> None:
    """The server itself leaves out a line end now and then, and breaks lines inside messages."""
    for name in NAMES:
        assert "garbled_lines" not in sb.open(DATA / f"{name}.log.gz").notes


def lines_of(name: str = "four") -> list[bytes]:
    return gzip.decompress((DATA / f"{name}.log.gz").read_bytes()).splitlines(keepends=True)


def test_a_log_without_timestamps_is_refused_with_the_flags(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"".join(re.sub(rb"\d+\.\d\d\.\d{3}\.\d{3} ", b"", line) for line in lines_of()))
    error = refused(path)
    assert error.slug == "llama-stamps"
    assert "-lv 10 --log-timestamps --log-file" in error.remedy


def test_a_log_that_is_not_verbose_is_refused_with_the_flags(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"".join(line for line in lines_of() if not re.match(rb"\S+ D ", line)))
    error = refused(path)
    assert error.slug == "llama-verbose"
    assert "-lv 10 --log-timestamps --log-file" in error.remedy
    assert re.search(r"server\.log:\d+$", error.where)


def test_other_output_may_stand_before_it(tmp_path: Path) -> None:
    path = tmp_path / "stderr.txt"
    path.write_bytes(b"load_backend: loaded CPU backend\n\n" + b"".join(lines_of()))
    assert len(sb.open(path).requests.names) == 4


def test_what_failed_tells_nothing_of_the_request(tmp_path: Path) -> None:
    made = Made()
    made.arrive(5, 3)
    made.launch()
    made.step(64)
    made.say("srv", "send_error", "task id = 0, error: Failed to parse 12 rules: root ::= secret", "E")
    made.say("slot", "release", "id  0 | task 0 | stop processing: n_tokens = 5, truncated = 0", "I")
    run = sb.open(made.write(tmp_path / "a"))
    assert run.facts["failed"] == {"Failed to parse N rules": 1}


def test_a_log_without_a_request_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"".join(itertools.takewhile(lambda line: b"new task" not in line, lines_of())))
    assert refused(path).slug == "empty"


def test_two_servers_in_one_file_are_refused_at_the_second(tmp_path: Path) -> None:
    path, first = tmp_path / "server.log", lines_of()
    path.write_bytes(b"".join([*first, *lines_of("mixed")]))
    error = refused(path)
    assert error.slug == "backwards"
    place = int(error.where.rpartition(":")[2])
    assert len(first) < place <= len(first) + 10


def test_a_long_log_is_not_held(tmp_path: Path) -> None:
    made = served(random.Random(5), text="x" * 20_000, requests=60)
    path = made.write(tmp_path / "long.log")
    size = path.stat().st_size
    assert size > 10_000_000
    made.lines.clear()
    seen: list[tuple[int, int]] = []
    tracemalloc.start()
    run = stallbook.log.open_run(path, lambda done, total: seen.append((done, total)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert int(run.emissions.tokens.sum()) == sum(len(times) for times in made.told.tokens.values())
    assert peak < size / 4
    assert all(0 < done <= total == size for done, total in seen)


def test_the_text_of_answers_is_no_message(tmp_path: Path) -> None:
    """A model may print a line of the log."""
    fake = "'\n9.00.000.000 D slot process_toke: id  0 | task 0 | n_gen = 99, n_remaining = 1, next token: 1 'x"
    made = Made(text=" srv 0.00.000.001 D que  x: done yielding to queue ")
    made.arrive(5, 3)
    made.launch()
    for _ in range(3):
        made.step(64)
    made.idle()
    run = sb.open(made.write(tmp_path / "a"))
    assert told_of(run)[1] == made.told.tokens
    assert not run.notes
    made.lines[-2] += fake
    assert isinstance(attempt(made.write(tmp_path / "b")), Run)
