"""SGLang's scheduler in its normal loop: what the hooks write is what happened."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_sglang import Batch, Hooked, Req, Scheduler, module, process
from fakes import MS, START, Clock, gaps

import stallbook as sb
from stallbook.adapters.sglang import scheduler
from stallbook.run import NEVER


def test_a_gap_is_cut_into_what_the_scheduler_did(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    one = served.req("r1")
    served.scheduler.normal(Batch([one], [8]))
    clock.go(2)  # the loop: requests come in
    served.scheduler.normal(Batch([one]), 7)
    served.close()
    assert gaps(tmp_path / "a.stall") == {
        ("r1", 9.0): {"fwd": 7, "sched": 1, "sample": 1, "output": 1, "other:dispatch": 2, "other:loop": 2}
    }
    assert served.scheduler.calls.count("process_batch_result") == 2


def test_batch_mix_and_life_of_requests(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    normal = served.scheduler.normal
    r1, r2 = served.req("r1", limit=6), served.req("r2", prompt=100)
    normal(Batch([r1], [8]))
    normal(running := Batch([r1]))
    served.scheduler.chunked_req = r2
    normal(Batch([r2], [64]))  # a step of its own: r1 waits for all of it
    served.scheduler.chunked_req = None
    normal(Batch([r2, r1], [36, 1], [r1]))  # mixed
    running.reqs = [r1, r2]  # the same batch as before
    normal(running)
    normal(running)
    normal(running)
    running.reqs = [r2]
    normal(running)
    served.scheduler.normal(None)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.notes == {}
    assert run.steps.decode_tokens.tolist() == [0, 1, 0, 1, 2, 2, 2, 1]
    assert run.steps.prefill_tokens.tolist() == [8, 0, 64, 36, 0, 0, 0, 0]
    names = run.requests.names
    members = [sorted(names[i] for i in run.members.request[a:b]) for a, b in pairwise(run.members.start.tolist())]
    both = ["r1", "r2"]
    assert members == [["r1"], ["r1"], ["r2"], both, both, both, both, ["r2"]]
    told = zip(run.emissions.step.tolist(), run.emissions.request.tolist(), run.emissions.tokens.tolist(), strict=True)
    assert sorted((step, names[request], tokens) for step, request, tokens in told) == [
        (0, "r1", 1), (1, "r1", 1), *[(step, one, 1) for step in (3, 4, 5, 6) for one in both], (7, "r2", 1)
    ]  # fmt: skip
    assert run.requests.prompt_tokens.tolist() == [8, 100]
    assert run.requests.max_tokens.tolist() == [6, 20]
    assert (run.requests.finish > 0).tolist() == [True, False]
    found = gaps(tmp_path / "a.stall")
    # All of r2's first chunk, and its share of the mixed step: as many of its tokens as are not r1's.
    assert found["r1", 19.0]["prefill"] == pytest.approx(5 + 5 * 36 / 37, abs=1e-5)


def test_several_tokens_at_once(tmp_path: Path, clock: Clock) -> None:
    """Accepted drafts; what goes beyond the end is cut off."""
    served = Hooked(tmp_path / "a.stall", clock)
    one = served.req("r1", limit=4)
    served.scheduler.normal(Batch([one], [8]))

    def run_batch(batch: Batch) -> object:
        one.output_ids += [7, 7]
        return SimpleNamespace(copy_done=None, can_run_cuda_graph=False, speculative_num_draft_tokens=4)

    hooked = served.engine._run_batch(run_batch)
    batch = Batch([one])
    served.scheduler.planned = batch
    served.scheduler.get_next_batch_to_run()
    one.finished_len = 4
    served.scheduler.process_batch_result(batch, hooked(batch))
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.emissions.tokens.tolist() == [1, 3]
    assert run.steps.decode_tokens.tolist() == [0, 4]


def test_retraction_and_recomputation(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    normal = served.scheduler.normal
    r1, r2 = served.req("r1"), served.req("r2")
    normal(Batch([r1, r2], [8, 8]))
    clock.go(3)

    def retract() -> None:
        clock.go(0.5)
        r2.reset_for_retract()
        served.scheduler._add_request_to_queue(r2, is_retracted=True)

    gone = clock.now + MS // 2
    normal(Batch([r1]), meanwhile=retract)
    clock.go(1)
    back = clock.now + MS
    r2.is_retracted = False
    normal(Batch([r2], [9]), 11)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    e = run.evictions
    assert (e.t0.tolist(), e.t1.tolist(), e.recompute.tolist(), e.lost_tokens.tolist()) == ([gone], [back], [1], [8])
    found = gaps(tmp_path / "a.stall")["r2", 9.0]
    assert found["preempt"] == (back - gone) / MS
    assert found["prefill"] == 11


@pytest.mark.parametrize("loop", ["normal", "overlap"])
def test_a_name_that_comes_again_is_another_request(loop: str, tmp_path: Path, clock: Clock) -> None:
    """At once, while others decode and what the hooks saw is not written yet; its old row may still be in flight."""
    served = Hooked(tmp_path / "a.stall", clock, overlap=loop == "overlap")
    go = served.scheduler.overlap if loop == "overlap" else served.scheduler.normal
    r1, first = served.req("r1"), served.req("r2", limit=4)
    go(Batch([r1, first], [8, 8]))
    running = Batch([r1, first])
    while not first.finished_reason:
        go(running)
    second = served.req("r2", limit=6)
    running.reqs = [r1]
    go(Batch([second], [8]))
    running.reqs = [r1, second]
    while not second.finished_reason:
        go(running)
    go(None)
    recorder = served.process.recorder
    assert recorder is not None
    assert (served.process.hooks.errors, recorder.errors, recorder.refused) == (0, 0, 1)
    recorder.refused = 0  # it counts an id that is given a number
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.notes.keys() <= {"refused_calls"}
    assert run.requests.names == ("r1", "r2", "r2#2")
    got = [int(run.emissions.tokens[run.emissions.request == i].sum()) for i in range(3)]
    assert got == [len(r1.output_ids), 4, 6]
    assert (run.requests.finish > 0).tolist() == [False, True, True]


def test_an_eviction_that_never_ends(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    one = served.req("r1")
    served.scheduler.normal(Batch([one], [8]))
    one.reset_for_retract()
    served.scheduler.send_abort_output(None, one)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.evictions.t1.tolist() == [NEVER]
    assert run.requests.finish.tolist() == [clock.now]


def test_no_segment_covers_an_idle_engine(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    for name in ("r1", "r2"):
        for _ in range(100):
            clock.go(100)
            served.scheduler.normal(None)
        served.scheduler.normal(Batch([served.req(name, limit=1)], [8]))
    assert not served.engine.later.entries or len(served.engine.later.entries) == 3
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert (run.steps.t1 - run.steps.t0).max() < 100 * MS
    assert run.requests.arrive.tolist() == [START + 10_000 * MS, START + 20_010 * MS]


def test_requests_of_the_server_itself_are_left_out(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    served.scheduler.normal(Batch([served.req("HEALTH_CHECK_1", limit=1)], [1]))
    one = served.req("r1")
    served.scheduler.normal(Batch([one], [8]))
    served.scheduler.normal(None)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert (run.requests.names, run.emissions.tokens.tolist()) == (("r1",), [1])


def test_what_blocked_admission(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    one = served.req("r1", prompt=64)
    waiting, few, many = [Req("r2")], [one], [Req(f"r{i}") for i in range(4)]
    for queue, running, chunk in (([], few, 8), (waiting, few, 8), (waiting, many, 8), (waiting, few, 64)):
        served.scheduler.waiting_queue, served.scheduler.running_batch = queue, Batch(running)
        served.scheduler.normal(Batch([one], [chunk]))
        served.engine.later.flush()
    served.close()
    assert sb.open(tmp_path / "a.stall").steps.blocked.tolist() == [0, 1, 2, 3]


def test_one_that_is_refused_waits_for_no_grammar(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    compiled, refused = served.module.Req("r1"), served.module.Req("r2")
    served.scheduler._add_request_to_queue = lambda request: None  # type: ignore[method-assign,assignment,misc]
    served.scheduler.grammar_manager = SimpleNamespace(grammar_queue=[compiled])  # type: ignore[attr-defined]
    served.arrive(compiled, refused)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.holds.request.tolist() == [run.requests.names.index("r1")]
    assert (run.requests.finish > 0).tolist() == [False, True]


def test_a_grammar_is_a_hold(tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock)
    one = served.module.Req("r1")
    queue = served.scheduler._add_request_to_queue
    served.scheduler._add_request_to_queue = lambda request: None  # type: ignore[method-assign,assignment,misc]
    served.arrive(one)
    clock.go(30)
    queue(one)
    served.scheduler.normal(Batch([one], [8]))
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert [run.names[i] for i in run.holds.kind] == ["grammar"]
    assert (run.holds.t0.tolist(), run.holds.t1.tolist()) == ([START], [START + 30 * MS])


@pytest.mark.parametrize(("captured", "wanted"), [(True, (1, 4)), (False, (2, -1))])
def test_graphs_as_the_runner_reports_them(
    captured: bool, wanted: tuple[int, int], tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    original = Scheduler.__init__

    def init(self: Scheduler, clock: Clock, overlap: bool = False, stream: None = None) -> None:
        original(self, clock, overlap, stream)
        self.tp_worker.model_runner.decode_cuda_graph_runner = SimpleNamespace(bs=4)

    monkeypatch.setattr(Scheduler, "__init__", init)
    served = Hooked(tmp_path / "a.stall", clock)
    one = served.req("r1")
    served.scheduler.normal(Batch([one], [8]))
    batch = Batch([one])
    served.scheduler.planned = batch
    served.scheduler.get_next_batch_to_run()
    run_batch = Scheduler.run_batch

    def reports(batch: Batch) -> object:
        result = run_batch(served.scheduler, batch)
        result.can_run_cuda_graph = captured
        return result

    served.scheduler.process_batch_result(batch, served.engine._run_batch(reports)(batch))
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert list(zip(run.steps.graph.tolist(), run.steps.padded.tolist(), strict=True)) == [(0, -1), wanted]


def test_which_hooks_were_found_is_in_the_manifest(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.delattr(Req, "reset_for_retract")
    served = Hooked(tmp_path / "a.stall", clock)
    served.scheduler.normal(Batch([served.req("r1")], [8]))
    served.close()
    run = sb.open(tmp_path / "a.stall")
    hooks = run.facts["hooks"]
    assert hooks["model_runner.forward"]
    assert not hooks["Req.reset_for_retract"]
    assert "evictions" not in run.records
    assert sb.partition(run).abilities["preempt"] == "not recorded"
    assert run.config["stream_interval"] == 1


def test_a_hook_that_raises_costs_nothing_but_itself(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    served = Hooked(tmp_path / "a.stall", clock)
    one = served.req("r1")
    for _ in range(20):
        batch = Batch([one])
        batch.forward_mode = None  # type: ignore[assignment]
        served.scheduler.planned = batch
        plan = served.scheduler.get_next_batch_to_run()
        assert plan.batch_to_run is batch
        assert served.scheduler.run_batch(batch).can_run_cuda_graph is False
    assert not served.process.hooks.on
    assert capsys.readouterr().err.count("switched off") == 1
    assert served.process.recorder is not None
    served.process.recorder.close()


@pytest.mark.parametrize(
    ("more", "role"),
    [({"tp_rank": 1}, "worker:1"), ({"dp_rank": 1}, "engine"), ({"is_generation": False}, ""), ({"pp_size": 2}, "")],
    ids=str,
)
def test_ranks(more: dict[str, int], role: str, tmp_path: Path, clock: Clock) -> None:
    made, ours = module(**more), process(tmp_path / "a.stall", clock)
    scheduler.install(made, ours)
    made.Scheduler(clock)
    assert ours.role == role
    assert (tmp_path / "a.dp1.stall").is_dir() == ("dp_rank" in more)
    if ours.recorder is not None:
        ours.recorder.close()
