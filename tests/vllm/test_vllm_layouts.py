"""The other ways to run vLLM: several API servers, several engine cores, and no server at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vllm_load import load, mixed
from vllm_server import ENVIRONMENT, LARGE_POOL, THREE, NotServingError, serving

import stallbook as sb
from stallbook.run import Run

REQUESTS = 40
ALONE = """
import asyncio, gc, sys, weakref
from vllm import LLM, SamplingParams

def options(model):
    return dict(
        model=model, dtype="bfloat16", enforce_eager=True, max_model_len=1024, max_num_batched_tokens=512,
        block_size=32, num_gpu_blocks_override=200, enable_prefix_caching=False,
    )

def offline(model):
    llm = LLM(**options(model))
    limits = SamplingParams(max_tokens=32, ignore_eos=True)
    return sum(len(one.outputs[0].token_ids) for one in llm.generate(["kalo miren"] * 8, limits))

def twice(model):
    llm = LLM(**options(model))
    limits = SamplingParams(max_tokens=32, ignore_eos=True, n=2)
    count = sum(len(o.token_ids) for one in llm.generate(["kalo miren"] * 4, limits) for o in one.outputs)
    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    gone = weakref.ref(core.model_executor.driver_worker.worker.model_runner) if core is not None else lambda: None
    del llm, core
    gc.collect()
    print("held", gone())
    offline(model)
    return count

async def served(model):
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**options(model)))
    limits = SamplingParams(max_tokens=32, ignore_eos=True)

    async def one(name):
        async for last in engine.generate("kalo miren", limits, name):
            pass
        return len(last.outputs[0].token_ids)

    count = sum(await asyncio.gather(*(one(f"r{i}") for i in range(8))))
    engine.shutdown()
    return count

if __name__ == "__main__":
    way = globals()[sys.argv[1]](sys.argv[2])
    print("tokens", asyncio.run(way) if asyncio.iscoroutine(way) else way)
"""


def whole(log: Path, tokens: int) -> Run:
    """The log reconciles and has all of these tokens."""
    run = sb.open(log)
    p = sb.partition(run)
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
    assert int(run.emissions.tokens.sum()) == tokens
    return run


@pytest.mark.parametrize("separate", ["1", "0"], ids=["engine core apart", "one process"])
@pytest.mark.parametrize("way", ["offline", "served", "twice"])
def test_without_a_server(way: str, separate: str, home: Path, tmp_path: Path) -> None:
    if (way, separate) == ("served", "0"):
        pytest.skip("vLLM's AsyncLLM always has its engine core in another process")
    script, log = tmp_path / "alone.py", tmp_path / "out.stall"
    script.write_text(ALONE)
    given = os.environ | ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": separate, "STALLBOOK": str(log)}
    command = [sys.executable, str(script), way, str(home / "tiny")]
    told = subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 0, told.stderr[-3000:]
    assert "tokens 256" in told.stdout
    run = whole(log, 256)  # of two engines those of the first
    assert int(run.deliveries.tokens.sum()) == 256
    if way == "twice":
        assert "held None" in told.stdout
        assert "not recorded" in told.stderr or "recording stopped" in told.stderr


def test_two_api_servers(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "out.stall"
    flags = ("--api-server-count", "2")
    with serving(home, tmp_path / "server.txt", THREE, log, blocks=LARGE_POOL, flags=flags) as server:
        # What connects at once is one server's: who wakes first takes all that wait.
        asks = mixed(3, REQUESTS)
        answers = [one for k in range(0, REQUESTS, 2) for one in load(server.url, asks[k : k + 2])]
    assert [one.error for one in answers if one.error] == []
    run = whole(log, sum(one.tokens for one in answers))
    assert len(list(log.glob("api-*.spool"))) == 2
    assert int(run.deliveries.tokens.sum()) == int(run.emissions.tokens.sum())


def test_two_engine_cores(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "out.stall"
    flags, environment = ("--data-parallel-size", "2"), {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    try:
        with serving(
            home, tmp_path / "server.txt", THREE, log, blocks=LARGE_POOL, flags=flags, environment=environment
        ) as server:  # fmt: skip
            answers = load(server.url, mixed(4, REQUESTS))
    except NotServingError as error:
        pytest.skip(f"this vLLM has no data parallelism here: {str(error)[-300:]}")
    assert [one.error for one in answers if one.error] == []
    runs = [sb.open(one) for one in sorted(tmp_path.glob("out*.stall"))]
    assert len(runs) == 2
    assert sum(int(run.emissions.tokens.sum()) for run in runs) == sum(one.tokens for one in answers)
    for one in sorted(tmp_path.glob("out*.stall")):
        assert sb.partition(sb.open(one)).reconcile.max_error_ns == 0
