"""The worker inside the engine core: what the hooks write is what happened."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from fake_vllm import Output, Worker, core, process, request
from fakes import MS, START, Clock

import stallbook as sb
from stallbook.adapters.vllm.engine import Engine
from stallbook.run import NEVER


class Served:
    """An engine core that is driven step by step."""

    def __init__(self, folder: Path, clock: Clock, utils: ModuleType) -> None:
        self.clock, self.worker = clock, Worker(clock, utils)
        self.core, self.process = core(clock, self.worker), process(folder, clock)
        self.engine = Engine(self.core, self.process)
        self.scheduler = self.core.scheduler

    def step(self, output: Output, tokens: dict[str, int], forward: float = 5, **more: object) -> None:
        """Schedule 1 ms, hand over 1, run 1 + forward + 1 + 2 ms, hand back 1, output 1 ms."""
        self.scheduler.schedule(output, **more)
        self.clock.go(1)
        self.worker.execute_model(output, forward)
        self.worker.sample_tokens()
        self.clock.go(1)
        self.scheduler.update_from_output(output, tokens)

    def close(self) -> None:
        self.engine.later.flush()
        assert self.process.recorder is not None
        assert (self.process.hooks.errors, self.process.recorder.errors, self.process.recorder.dropped) == (0, 0, 0)
        self.process.recorder.close()


def parts(folder: Path, row: int) -> dict[str, float]:
    """The parts of a gap, ms."""
    p = sb.partition(sb.open(folder))
    assert p.reconcile.max_error_ns == 0
    return {cause: ns / MS for cause, ns in zip(p.causes, p.parts()[row].tolist(), strict=True) if ns}


def test_a_gap_is_cut_into_what_the_engine_and_its_worker_did(
    tmp_path: Path, clock: Clock, utils: ModuleType
) -> None:  # fmt: skip
    served = Served(tmp_path / "a.stall", clock, utils)
    served.scheduler.add_request(request("r1"))
    served.step(Output({"r1": 8}, new=("r1",)), {"r1": 1})
    clock.go(2)  # the loop
    served.step(Output({"r1": 1}), {"r1": 1}, forward=7)
    served.close()
    assert parts(tmp_path / "a.stall", 0) == {
        "fwd": 7, "sched": 1, "sample": 1, "output": 1, "other:dispatch": 2, "other:logits": 1, "other:loop": 2,
        "other:runner": 2,
    }  # fmt: skip


def test_batch_mix_and_life_of_requests(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    served = Served(tmp_path / "a.stall", clock, utils)
    for name in ("r1", "r2"):
        served.scheduler.add_request(request(name, prompt=600 if name == "r2" else 8))
    served.step(Output({"r1": 8}, new=("r1",)), {"r1": 1})
    served.step(Output({"r1": 1, "r2": 500}, new=("r2",)), {"r1": 1})  # a chunk of r2
    served.step(Output({"r1": 1, "r2": 100}), {"r1": 1, "r2": 1})
    served.step(Output({"r1": 1, "r2": 1}), {"r1": 1, "r2": 1})
    served.step(Output({"r2": 1}, finished_req_ids={"r1"}), {"r2": 1})
    served.step(Output({"r2": 3}), {"r2": 2})  # two accepted drafts
    served.scheduler.schedule(Output({}, finished_req_ids={"r2"}))
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.notes == {}
    assert run.steps.decode_tokens.tolist() == [0, 1, 1, 2, 1, 3]
    assert run.steps.prefill_tokens.tolist() == [8, 500, 100, 0, 0, 0]
    assert [run.requests.names[i] for i in run.emissions.request] == ["r1"] * 4 + ["r2"] * 4
    assert run.emissions.tokens.tolist() == [1, 1, 1, 1, 1, 1, 1, 2]
    start = run.members.start
    members = [sorted(run.requests.names[i] for i in run.members.request[a:b]) for a, b in pairwise(start.tolist())]
    assert members == [["r1"], ["r1", "r2"], ["r1", "r2"], ["r1", "r2"], ["r2"], ["r2"]]
    assert run.requests.prompt_tokens.tolist() == [8, 600]
    assert (run.requests.finish > 0).all()


def test_evictions_and_recomputation(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    served = Served(tmp_path / "a.stall", clock, utils)
    both = [request("r1"), request("r2")]
    for one in both:
        served.scheduler.add_request(one)
    served.step(Output({"r1": 8, "r2": 8}, new=("r1", "r2")), {"r1": 1, "r2": 1})
    clock.go(3)

    def preempt() -> None:
        clock.go(0.5)
        served.scheduler._preempt_request(both[1], 0.0)

    gone = clock.now + MS // 2
    served.step(Output({"r1": 1}), {"r1": 1}, meanwhile=preempt, ms=0.5)
    clock.go(1)
    back = clock.now + MS
    served.step(Output({"r1": 1, "r2": 9}, resumed=("r2",)), {"r1": 1, "r2": 1}, forward=11)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    e = run.evictions
    assert (e.t0.tolist(), e.t1.tolist(), e.recompute.tolist(), e.lost_tokens.tolist()) == ([gone], [back], [1], [8])
    assert served.scheduler.calls.count("_preempt_request") == 1
    found = parts(tmp_path / "a.stall", 2)  # r2's gap; r1's are before
    assert found["preempt"] == (back - gone) / MS
    assert found["prefill"] == 11 * 9 / 10  # of a mixed step, by share of tokens: there is no baseline
    assert found["output"] == 1  # its own first step's; the other one was while it was out


def test_an_eviction_that_never_ends(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    served = Served(tmp_path / "a.stall", clock, utils)
    one = request("r1")
    served.scheduler.add_request(one)
    served.step(Output({"r1": 8}, new=("r1",)), {"r1": 1})
    served.scheduler._preempt_request(one, 0.0)
    served.close()
    assert sb.open(tmp_path / "a.stall").evictions.t1.tolist() == [NEVER]


def test_no_segment_covers_an_idle_engine(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    served = Served(tmp_path / "a.stall", clock, utils)
    for name in ("r1", "r2"):
        clock.go(10_000)
        served.scheduler.add_request(request(name))
        served.step(Output({name: 8}, new=(name,)), {name: 1})
        served.scheduler.schedule(Output({}, finished_req_ids={name}))
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert (run.steps.t1 - run.steps.t0).max() < 100 * MS
    assert run.requests.arrive.tolist() == [START + 10_000 * MS, START + 20_014 * MS]


def test_what_blocked_admission(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    served = Served(tmp_path / "a.stall", clock, utils)
    served.scheduler.add_request(request("r1"))
    blocked = []
    for waiting, running, tokens in (([], [], 1), (["r2"], [], 1), (["r2"], ["x"] * 32, 1), (["r2"], [], 512)):
        served.scheduler.waiting, served.scheduler.running = waiting, running
        served.step(Output({"r1": tokens}), {"r1": 1})
        served.engine.later.flush()
    served.close()
    blocked = sb.open(tmp_path / "a.stall").steps.blocked.tolist()
    assert blocked == [0, 1, 2, 3]


def test_which_hooks_were_found_is_in_the_manifest(tmp_path: Path, clock: Clock, utils: ModuleType) -> None:
    scheduler = core(clock).scheduler
    del type(scheduler)._preempt_request
    try:
        served = Served(tmp_path / "a.stall", clock, utils)
        served.close()
    finally:
        type(scheduler)._preempt_request = lambda self, request, timestamp: None
    run = sb.open(tmp_path / "a.stall")
    hooks = run.facts["hooks"]
    assert hooks["Scheduler.schedule"]
    assert not hooks["Scheduler._preempt_request"]
    assert "evictions" not in run.records
    assert sb.partition(run).abilities["preempt"] == "not recorded"


def test_a_profiler_keeps_its_scopes(
    tmp_path: Path, clock: Clock, utils: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "vllm.envs", SimpleNamespace(VLLM_NVTX_SCOPES_FOR_PROFILING=True))
    served = Served(tmp_path / "a.stall", clock, utils)
    served.scheduler.add_request(request("r1"))
    for output in (Output({"r1": 8}, new=("r1",)), Output({"r1": 1})):
        served.step(output, {"r1": 1})
    served.close()
    assert vars(utils)["_PROFILER_FUNC"] is None
    assert not sb.open(tmp_path / "a.stall").facts["hooks"]["vllm.v1.utils._PROFILER_FUNC"]
    assert parts(tmp_path / "a.stall", 0) == {"sched": 1, "output": 1, "other:dispatch": 11}
