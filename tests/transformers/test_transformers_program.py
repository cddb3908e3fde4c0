"""Programs of a user's own: one line that attaches, batches one after the other, several answers to a prompt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cb_engines import ENVIRONMENT

import stallbook as sb

BATCHES = """
import stallbook

stallbook.attach({log!r})

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained({model!r}, dtype=torch.float32, attn_implementation="sdpa")
config = ContinuousBatchingConfig(page_size=16, num_blocks=64, max_batch_tokens=64)
asked = dict(do_sample=False, eos_token_id=-1, max_new_tokens=12)
prompts = [[5 + n] * (8 + n) for n in range(6)]
found = []
for more in ({{}}, {{}}, {{"num_return_sequences": 2, "do_sample": True}}):
    generation = GenerationConfig(**(asked | more))
    found.append(model.generate_batch(prompts, generation_config=generation, continuous_batching_config=config))
print([sum(len(one.generated_tokens) for one in outputs.values()) for outputs in found])
"""


def run(words: list[str], folder: Path) -> str:
    """What Python prints, in an environment that says nothing of a log."""
    given = {key: value for key, value in os.environ.items() if not key.startswith("STALLBOOK")} | ENVIRONMENT
    command = [sys.executable, *words]
    return subprocess.run(command, env=given, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def batches(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], Path]:
    folder = tmp_path_factory.mktemp("batches")
    log = folder / "out.stall"
    (folder / "program.py").write_text(BATCHES.format(log=str(log), model=str(home / "endless")))
    said = run([str(folder / "program.py")], folder)
    return [int(n) for n in said.splitlines()[-1].strip("[]").split(",")], log


def test_batch_after_batch_goes_into_one_log(batches: tuple[list[int], Path]) -> None:
    tokens, log = batches
    assert tokens == [72, 72, 144]
    found = sb.open(log)
    assert int(found.emissions.tokens.sum()) == sum(tokens)
    assert len(found.requests.names) == 6 + 6 + 12
    assert {"req_0", "req_0@2", "req_0@3", "req_0__child#0@3"} <= set(found.requests.names)


def test_its_gaps_are_whole(batches: tuple[list[int], Path]) -> None:
    tokens, log = batches
    p = sb.partition(sb.open(log))
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)
    assert len(p.gaps) == sum(tokens) - 24
    assert (p.run.requests.finish > 0).all()
    assert p.run.facts["closed"]["errors"] == 0


def test_hooks_are_found_and_settings_kept(batches: tuple[list[int], Path]) -> None:
    found = sb.open(batches[1])
    assert [name for name, there in found.facts["hooks"].items() if not there] == []
    assert found.engine.startswith("transformers ")
    assert (found.config["page_size"], found.config["num_blocks"], found.config["max_batch_tokens"]) == (16, 64, 64)
    assert {"decode", "sample", "sched", "runner", "output"} <= set(found.names)
    assert np.isin(found.steps.graph, [0]).all()


def test_without_the_variable_nothing_happens(home: Path, tmp_path: Path) -> None:
    code = "import sys, stallbook; before = list(sys.meta_path); stallbook.attach(); print(sys.meta_path == before)"
    assert run(["-c", code], tmp_path) == "True"
    assert list(tmp_path.iterdir()) == []
