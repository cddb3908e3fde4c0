"""SGLang's scheduler through lives of any kind: what each request got is what its answer holds, step by step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from fake_sglang import Batch, Hooked, Req, nothing
from fakes import Clock

import stallbook as sb


class Lives:
    """Requests that come, decode, are retracted, aborted and come again under their names; the server's own, too."""

    def __init__(self, served: Hooked, overlap: bool, seed: int) -> None:
        self.served, self.rng, self.overlap = served, Random(seed), overlap
        self.decoding, self.waiting = list[Req](), list[Req]()
        self.running = Batch([])
        self.answers: list[tuple[str, Req]] = []
        self.names: Counter[str] = Counter()

    def step(self) -> None:
        """One pass of the loop."""
        rng, scheduler = self.rng, self.served.scheduler
        go = scheduler.overlap if self.overlap else scheduler.normal
        alive = {one.rid for one in (*self.decoding, *self.waiting)}
        if rng.random() < 0.2:
            name = "HEALTH_CHECK_1" if rng.random() < 0.2 else f"r{rng.randrange(12)}"
            if name not in alive:
                one = self.served.req(name, limit=rng.randint(1, 30))
                self.waiting.append(one)
                if not name.startswith("HEALTH"):
                    self.names[name] += 1
                    count = self.names[name]
                    self.answers.append((name if count == 1 else f"{name}#{count}", one))
        self.decoding = [one for one in self.decoding if not one.finished_reason]
        if self.waiting and rng.random() < 0.5:
            chosen, self.waiting = self.waiting, []
            for one in chosen:
                one.is_retracted = False
            go(Batch(chosen, [8] * len(chosen)))
            self.decoding += chosen
            return
        meanwhile = nothing
        if self.decoding and rng.random() < 0.05:
            out = self.decoding.pop(rng.randrange(len(self.decoding)))
            meanwhile = out.reset_for_retract
            self.waiting.append(out)
        self.running.reqs = list(self.decoding)
        go(self.running if self.decoding else None, 5, meanwhile)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loop", ["normal", "overlap"])
def test_each_answer_is_what_was_emitted(loop: str, seed: int, tmp_path: Path, clock: Clock) -> None:
    served = Hooked(tmp_path / "a.stall", clock, overlap=loop == "overlap")
    lives = Lives(served, loop == "overlap", seed)
    for _ in range(600):
        lives.step()
    (served.scheduler.overlap if loop == "overlap" else served.scheduler.normal)(None)
    recorder = served.process.recorder
    assert recorder is not None
    served.engine.later.flush()
    assert (served.process.hooks.errors, recorder.errors, recorder.dropped) == (0, 0, 0)
    recorder.refused = 0  # it counts names that come again
    served.close()
    run = sb.open(tmp_path / "a.stall")
    got = Counter(dict.fromkeys(run.requests.names, 0))
    for who, tokens in zip(run.emissions.request.tolist(), run.emissions.tokens.tolist(), strict=True):
        got[run.requests.names[who]] += tokens
    assert got == {name: len(one.output_ids) for name, one in lives.answers}
    assert len(lives.answers) > 60
    done = {name for name, one in lives.answers if one.finished_reason}
    assert {n for n, t in zip(run.requests.names, run.requests.finish.tolist(), strict=True) if t > 0} == done
    assert sb.partition(run).reconcile.max_error_ns == 0
