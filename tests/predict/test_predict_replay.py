"""Replayed with its own scheduler, a recorded run gives every step again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from predict_logs import recorded

from stallbook.errors import StallbookError
from stallbook.predict.model import limits_of, settings_of
from stallbook.predict.policy import DemoPolicy
from stallbook.predict.replay import Replay, replay
from stallbook.run import Run


def replayed(run: Run, **changes: object) -> Replay:
    found = Replay()
    limits = replace(limits_of(settings_of(run)), **changes)
    for _ in replay(run, DemoPolicy(limits), found):
        pass
    return found


@pytest.mark.parametrize("name", ["swap", "recompute", "process"])
def test_every_step_is_as_it_was_recorded(name: str) -> None:
    run = recorded(name)
    found = replayed(run)
    assert found.exact, found.mismatches[:3]
    assert found.steps == len(run.steps.id) > 500
    assert found.evictions == len(run.evictions.t0) > 5
    assert found.restarts == (run.preemptions - found.evictions if run.preemptions >= 0 else 0)


def test_another_scheduler_is_found_out() -> None:
    run = recorded("swap")
    found = replayed(run, admit_watermark=0.2)
    assert not found.exact
    assert found.mismatches[0].recorded != found.mismatches[0].planned


def test_a_changed_record_is_found_out() -> None:
    run = recorded("swap")
    rows = run.steps.decode_tokens.copy()
    step = int(np.flatnonzero(rows > 3)[40])
    rows[step] -= 1
    found = replayed(replace(run, steps=replace(run.steps, decode_tokens=rows)))
    assert [m.step for m in found.mismatches] == [step]
    assert found.mismatches[0].field == "decode_tokens"


def test_a_request_that_can_never_fit_is_refused() -> None:
    run = recorded("swap")
    with pytest.raises(StallbookError) as refused:
        replayed(run, kv_blocks=20)
    assert refused.value.slug == "no-replay"
