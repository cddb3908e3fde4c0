"""Tokenizer manager, scheduler and detokenizer as processes: their spools are one recording."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from fake_sglang import Batch, Hooked, Req, process
from fakes import MS, START, Clock

import stallbook as sb
from stallbook.adapters.process import Process
from stallbook.adapters.sglang import detokenizer, frontend
from stallbook.report.selfcheck import rows


class TokenizerManager:
    """Takes requests and hands out tokens."""

    def __init__(self) -> None:
        self.rid_to_state: dict[str, str] = {}
        self.sent: list[Any] = []

    async def _send_one_request(self, asked: Any) -> None:
        self.sent.append(asked)

    async def _send_batch_request(self, asked: list[Any]) -> None:
        self.sent += asked

    def _handle_abort_req(self, abort: Any) -> None:
        self.rid_to_state.pop(abort.rid, None)

    async def _handle_batch_output(self, output: Any) -> str:
        for rid, reason in zip(output.rids, output.finished_reasons, strict=True):
            if reason:
                self.rid_to_state.pop(rid, None)
        return "handled"


class DetokenizerManager:
    """Makes text of tokens."""

    def handle_batch_token_id_out(self, output: Any) -> Any:
        return output


def manager(process: Process) -> TokenizerManager:
    """A tokenizer manager, hooked."""
    module: Any = ModuleType("sglang.srt.managers.tokenizer_manager")
    module.TokenizerManager = type("TokenizerManager", (TokenizerManager,), dict(vars(TokenizerManager)))
    frontend.install(module, process)
    made: TokenizerManager = module.TokenizerManager()
    return made


def asked(rid: str, came: int) -> Any:
    """A tokenized request."""
    one = Req(rid)
    vars(one)["time_stats"] = SimpleNamespace(created_time=came / 1e9)
    return one


def output(requests: list[Req], retractions: int = 0, rank: int | None = None) -> Any:
    """A `BatchStrOutput` with a token of each."""
    return SimpleNamespace(
        rids=[one.rid for one in requests], output_ids=[[7]] * len(requests),
        finished_reasons=[one.finished_reason for one in requests],
        completion_tokens=[len(one.output_ids) for one in requests], retraction_counts=[retractions] * len(requests),
        dp_ranks=[rank] * len(requests),
    )  # fmt: skip


def serve(served: Hooked, front: TokenizerManager, text: DetokenizerManager, rank: int | None = None) -> None:
    """Three tokens of one request, through all processes."""
    clock = served.clock

    async def life() -> None:
        rid = f"r{rank or 0}"
        came = clock.now
        clock.go(4)  # tokenized
        front.rid_to_state[rid] = "alive"
        await front._send_one_request(asked(rid, came))
        clock.go(2)  # sent
        one = served.req(rid, limit=3)
        for batch in (Batch([one], [8]), Batch([one]), Batch([one])):
            served.scheduler.normal(batch)
            clock.go(3)  # on its way back
            told = text.handle_batch_token_id_out(output([one], 1, rank))
            assert await front._handle_batch_output(told) == "handled"

    asyncio.run(life())


def test_what_the_other_processes_add(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "a.stall"
    served, ours, its = Hooked(folder, clock), process(folder, clock), process(folder, clock)
    module: Any = ModuleType("sglang.srt.managers.detokenizer_manager")
    module.DetokenizerManager = type("DetokenizerManager", (DetokenizerManager,), dict(vars(DetokenizerManager)))
    detokenizer.install(module, its)
    serve(served, manager(ours), module.DetokenizerManager())
    served.close()
    for each in (ours, its):
        assert each.recorder is not None
        assert (each.hooks.errors, each.recorder.errors, each.recorder.refused) == (0, 0, 0)
        each.recorder.close()
    assert (ours.role, its.role, ours.handles) == ("api:0", "detokenizer:0", {})
    run = sb.open(folder)
    assert run.notes == {}
    assert run.requests.arrive.tolist() == [START]
    holds = {run.names[k]: (b - a) / MS for k, a, b in zip(run.holds.kind, run.holds.t0, run.holds.t1, strict=True)}
    assert holds == {"handoff": 2, "tokenize": 4}
    assert run.deliveries.tokens.tolist() == [1, 1, 1]
    assert run.facts["detokenizer:0.detokenized"]["batches"] == 1
    assert run.facts["api:0.counters"] == {"preemptions": {"0": 1}, "generation_tokens": {"0": 3}}
    assert sb.partition(run).reconcile.max_error_ns == 0
    report = sb.report(run)
    told = dict(rows(report))  # nothing was retracted, though the answers say so
    assert told["engine's counts"] == "preemptions 1, RECORDED 0; generation tokens 3, as recorded"
    assert told["hooks"].endswith("found")


def test_ranks_of_a_data_parallel_server_have_logs_of_their_own(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "a.stall"
    ours = process(folder, clock)
    front, engines = manager(ours), []
    for rank in (0, 1):
        served = Hooked(folder, clock, dp_rank=rank)
        serve(served, front, DetokenizerManager(), rank)
        served.close()
        engines.append(served)
    assert ours.recorder is not None
    ours.recorder.close()
    runs = [sb.open(folder), sb.open(tmp_path / "a.dp1.stall")]
    assert [run.requests.names for run in runs] == [("r0",), ("r1",)]
    assert [run.deliveries.tokens.tolist() for run in runs] == [[1, 1, 1]] * 2
    assert [run.facts["engine_index"] for run in runs] == [0, 1]


def test_requests_sent_together_and_those_of_the_server_itself(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "a.stall"
    served, ours = Hooked(folder, clock), process(folder, clock)
    front = manager(ours)
    both = [asked("r1", clock.now), asked("HEALTH_CHECK_2", clock.now)]
    asyncio.run(front._send_batch_request(both))
    assert front.sent == both
    assert list(ours.handles) == ["r1"]
    served.close()
    assert ours.recorder is not None
    ours.recorder.close()


def test_one_that_is_aborted_is_forgotten_and_one_of_its_name_is_another(tmp_path: Path, clock: Clock) -> None:
    """The scheduler refused the first; the second got a token, the third two, the first of them as the second did."""
    folder = tmp_path / "a.stall"
    served, ours = Hooked(folder, clock), process(folder, clock)
    front = manager(ours)

    async def life() -> None:
        for tokens in (0, 1, 2):
            came = clock.now
            clock.go(4)
            front.rid_to_state["a"] = "alive"
            await front._send_one_request(asked("a", came))
            one = served.req("a", limit=tokens)
            if not tokens:
                served.scheduler.send_abort_output(None, one)
                front._handle_abort_req(SimpleNamespace(rid="a"))
                assert not ours.handles
            for n in range(tokens):
                served.scheduler.normal(Batch([one], [8] if not n else None))
                await front._handle_batch_output(output([one]))

    asyncio.run(life())
    served.engine.later.flush()
    for one in (served.process, ours):
        assert one.recorder is not None
        assert (one.hooks.errors, one.recorder.errors) == (0, 0)
        one.recorder.close()
    run = sb.open(folder)
    assert run.notes == {}
    assert run.requests.names == ("a", "a#2", "a#3")
    assert (run.requests.finish > 0).all()
    assert [run.requests.names[i] for i in run.deliveries.request] == ["a#2", "a#3", "a#3"]
