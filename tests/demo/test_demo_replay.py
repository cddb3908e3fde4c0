"""The scheduler is the post's: replayed on its logs, every step gets the same plan."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stallbook.demo.scheduler import CAPTURED, EAGER, Limits, Plan, Sequence, State, commit, plan

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
TOKENIZED_ON_THE_LOOP = ("baseline__s1", "gc-freeze__s3")


@pytest.mark.parametrize("name", TOKENIZED_ON_THE_LOOP)
def test_every_step_of_a_recorded_run_gets_the_same_plan(name: str) -> None:
    log = np.load(GOLDEN / f"{name}.npz")
    config = json.loads(str(log["config"]))
    names = ("kv_blocks", "max_num_seqs", "token_budget", "admit_watermark")
    limits = Limits(**{key: config[key] for key in names}, capture_sizes=tuple(config["capture_sizes"]))
    state = State(limits.kv_blocks)
    arrivals = sorted((at, int(key), int(prompt), int(new)) for key, at, prompt, new, _ in log["requests"])
    for index, (t0, _, *recorded) in enumerate(log["steps"]):
        while arrivals and arrivals[0][0] <= t0 + 1e-9:
            _, key, prompt, new = arrivals.pop(0)
            state.add(Sequence(key, prompt, new), limits)
        step = plan(state, limits)
        assert counts(step) == tuple(map(int, recorded)), f"step {index}"
        commit(state, step)
    assert not state.busy


def counts(step: Plan) -> tuple[int, int, int, int, int]:
    """As the post's `steps` table has them: decodes, prefill tokens, path, evictions, readmissions."""
    path = {CAPTURED: step.padded, EAGER: 0}.get(step.graph, -1)
    prefill = sum(chunk.tokens for chunk in step.chunks)
    return len(step.decodes), prefill, path, len(step.evict), len(step.readmit)
