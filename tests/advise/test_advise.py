"""What is advised for each cause, on planted logs: the fix, its knob, the evidence, and when nothing is said."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from planted_advice import RECORDS, planted

from stallbook.advise import Advice, Finding, advise
from stallbook.advise.model import ALREADY, NEXT, NOT_IN_LOG
from stallbook.demo import Settings
from stallbook.report.advised import answer, dumps, sentence, turned
from stallbook.study.rungs import RUNGS, Rung, settings_of

BASE = asdict(Settings())


def first(a: Advice, cause: str) -> Finding:
    assert a.findings, "nothing is advised"
    assert a.findings[0].cause == cause
    return a.findings[0]


def said(f: Finding, sense: str) -> str:
    return " | ".join(sentence(s) for s in f.evidence if s.sense == sense)


def states(f: Finding) -> dict[str, str]:
    return {r.fix.slug: r.state for r in f.remedies}


@pytest.mark.parametrize(("below", "rung"), [*pairwise(RUNGS)], ids=lambda rung: rung.slug)
def test_below_each_rung_its_own_fix_is_named_first(tmp_path: Path, below: Rung, rung: Rung) -> None:
    assert rung.cause is not None
    p = planted(tmp_path, rung.cause, config=asdict(settings_of(below, Settings())))
    remedy = first(advise(p), rung.cause).next
    assert remedy is not None
    ((name, value),) = rung.delta.items()
    setting = remedy.settings[0]
    assert setting.flag == f"--{name.replace('_', '-')}"
    wanted = ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is True else str(value)
    assert setting.to == wanted
    assert setting.present == asdict(settings_of(below, Settings()))[name] or setting.present == list(BASE[name])


def test_what_is_set_already_is_said_and_the_next_fix_comes_first(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "gc", config=BASE | {"gc_freeze": True})), "gc")
    assert turned(f.next) == "set --compact-history (now off)"
    assert states(f)["gc-freeze"] == ALREADY
    f = first(advise(planted(tmp_path, "gc", config=BASE | {"gc_freeze": True, "compact_history": True})), "gc")
    assert turned(f.next) == "collect less often: raise the collector's thresholds"
    assert states(f) == {"gc-thresholds": NEXT, "gc-freeze": ALREADY, "fewer-objects": ALREADY}


def test_captured_sizes_that_cover_the_largest_batch_are_set_already(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "graph", config=BASE | {"capture_sizes": [1, 8, 40]})), "graph")
    assert states(f) == {"fewer-sequences": NEXT, "capture-sizes": ALREADY}


def test_a_budget_whose_prompts_take_as_long_as_a_usual_step_is_small_already(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "prefill", config=BASE)), "prefill")
    assert turned(f.next) == "lower --token-budget to 256 (now 2048)"  # 48 rows, and 10 ms at 0.05 ms a token
    f = first(advise(planted(tmp_path, "prefill", config=BASE | {"token_budget": 256})), "prefill")
    assert states(f)["smaller-chunks"] == ALREADY
    assert f.next is not None
    assert f.next.fix.slug == "space-prefills"


def test_all_streams_stopping_at_once_speaks_for_a_collection(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "gc")), "gc")
    assert "in 1 of the 1 worst gaps that it leads every live stream stopped at the same instant" in said(f, "for")
    assert "1 full collections while serving, 100 ms to 100 ms" in said(f, "for")


def test_other_streams_going_on_speaks_for_an_eviction(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "preempt")), "preempt")
    assert "in 1 of the 1 worst gaps that it leads other live streams went on" in said(f, "for")
    assert "1 evictions, 100 ms away in the median" in said(f, "for")


def test_a_hold_stops_single_streams(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "other:lora", "vllm 0.32.0")), "other:lora")
    assert "other live streams went on" in said(f, "for")
    assert turned(f.next) == "raise --max-loras (not in this log; by default 1)"


def test_the_ceiling_is_the_tail_without_the_cause(tmp_path: Path) -> None:
    p = planted(tmp_path, "gc")
    f = first(advise(p), "gc")
    assert f.p99 == pytest.approx(10)
    assert advise(p).present["p99"] == pytest.approx(110)


@pytest.mark.parametrize(
    ("cause", "engine", "knob"),
    [
        ("prefill", "vllm 0.32.0+cpu", "lower --max-num-batched-tokens to 256 (now 8192)"),
        ("preempt", "vllm 0.32.0+cpu", "set --watermark 0.1 (not in this log; by default 0.0)"),
        ("graph", "vllm 0.32.0+cpu", "set --max-cudagraph-capture-size 40 (not in this log; by default not set)"),
        ("sched", "vllm 0.32.0+cpu", "set --async-scheduling (now off)"),
        ("gc", "vllm 0.32.0+cpu", "keep what is made per token in flat arrays, not as objects"),
        ("prefill", "sglang 0.5.23", "lower --chunked-prefill-size to 256 (now 8192)"),
        ("preempt", "sglang 0.5.23", "raise --schedule-conservativeness (not in this log; by default 1.0)"),
        ("graph", "sglang 0.5.23", "set --cuda-graph-max-bs-decode 40 (not in this log; by default not set)"),
        ("gc", "sglang 0.5.23", "raise --gc-threshold (not in this log; by default not set)"),
        ("prefill", "my engine 1", "take fewer prompt tokens a step"),
        ("os", "stallbook demo", "set --tokenizer-cpus 1 (now not set)"),
        ("other:mine", "stallbook demo", "move that work off the step, or before serving"),
    ],
)  # fmt: skip
def test_each_engine_by_its_own_names(tmp_path: Path, cause: str, engine: str, knob: str) -> None:
    config: dict[str, Any] = {"max_num_batched_tokens": 8192, "chunked_prefill_size": 8192, "async_scheduling": False}
    config |= {"tokenize": "process", "tokenizer_cpus": None, "cpus": 2, "max_num_seqs": 48, "blas_threads": 1}
    told = advise(planted(tmp_path, cause, engine, config))
    assert turned(first(told, cause).next) == knob
    assert bool(told.source) == (engine != "my engine 1")


def test_what_an_engine_does_by_itself_is_said(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "gc", "vllm 0.32.0")), "gc")
    (freeze,) = [r for r in f.remedies if r.fix.slug == "gc-freeze"]
    assert (freeze.state, freeze.why) == (ALREADY, "vLLM freezes the heap after start-up by itself")


def test_the_demonstrators_tokenizer_cpus_do_nothing_while_it_tokenizes_on_the_loop(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "os", config=BASE)), "os")
    assert all(s.flag != "--tokenizer-cpus" for r in f.remedies for s in r.settings)


def test_what_is_not_recorded_is_not_advised_on_but_named(tmp_path: Path) -> None:
    told = advise(planted(tmp_path, "gc", records=[r for r in RECORDS if r != "os"]))
    (os,) = [s for s in told.silences if s.cause == "os"]
    assert (os.ability, os.record) == ("not recorded", "record run-queue delay (run_delay_ns) of segments or steps")
    assert "os" not in told.ruled_out
    assert "preempt" in told.ruled_out


def test_a_swap_without_evictions_on_record_says_what_is_missing(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "swap", records=["segments", "graph"])), "preempt")
    assert "evictions are not recorded: only the copies are in it" in said(f, "against")
    assert "copies out and back took 100 ms" in said(f, "for")


def test_slow_without_run_queue_delay_asks_for_that_first(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "slow", records=[r for r in RECORDS if r != "os"])), "slow")
    assert f.record.startswith("record run-queue delay")
    assert "run-queue delay and KV tokens not recorded" in said(f, "against")
    assert first(advise(planted(tmp_path, "slow")), "slow").record == ""


def test_residual_asks_for_records_and_names_no_fix(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "residual")), "residual")
    assert (f.remedies, f.next) == ((), None)
    assert f.record.startswith("name segments")


def test_the_frontends_gaps_have_the_frontends_fixes(tmp_path: Path) -> None:
    p = planted(tmp_path, "frontend", "vllm 0.32.0")
    f = first(advise(p, "frontend"), "frontend")
    assert turned(f.next) == "raise --api-server-count (not in this log; by default not set)"
    assert "the token waited mostly after emission" in said(f, "for")


@pytest.mark.parametrize("value", ["many", None, True, {"a": 1}, [], -5, 1e300, [None]])
def test_settings_of_any_kind_are_survived(tmp_path: Path, value: Any) -> None:
    for cause in ("prefill", "graph", "preempt", "os"):
        for engine in ("stallbook demo", "vllm", "sglang"):
            advise(planted(tmp_path, cause, engine, dict.fromkeys([*BASE, "max_num_batched_tokens", "cpus"], value)))


def test_what_is_not_in_the_log_is_said_to_be(tmp_path: Path) -> None:
    f = first(advise(planted(tmp_path, "preempt")), "preempt")
    assert f.next is not None
    assert f.next.settings[0].present == NOT_IN_LOG


def test_the_forward_pass_may_own_the_tail_and_is_no_stall(tmp_path: Path) -> None:
    told = advise(planted(tmp_path, "work", config=BASE, base=80))
    assert [f.cause for f in told.findings] == ["fwd", "sched"]
    assert told.foremost is told.findings[1]
    assert answer(told).startswith("73% of the tail's time is the forward pass, which is no stall; 27% is sched")


def test_a_log_of_another_version_is_told_to_check_its_help(tmp_path: Path) -> None:
    assert advise(planted(tmp_path, "gc", "vllm 0.31.1")).source.endswith("this log is of vllm 0.31.1: check its help")
    assert "check" not in advise(planted(tmp_path, "gc", "vllm 0.32.0+cpu")).source


def test_advice_from_a_log_that_is_not_whole_says_so(tmp_path: Path) -> None:
    p = planted(tmp_path, "prefill")
    cut = replace(p, run=replace(p.run, notes={"corrupt_bytes": 70}))
    assert "NOT WHOLE: 70 bytes" in " ".join(dumps([advise(cut)]).split())
    assert "NOT WHOLE" not in dumps([advise(p)])
