"""Who was in which batch and got how many tokens, of random schedules, against a tally kept by the test itself."""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path
from random import Random

import pytest
from fake_vllm import Output, Worker, core, process, request
from fakes import Clock

import stallbook as sb
from stallbook.adapters.vllm.engine import Engine

SEEDS = range(12)


class Load:
    """Random steps of a scheduler, and what each was."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.made = 0
        self.running: list[str] = []
        self.gone: set[str] = set()

    def output(self) -> tuple[Output, dict[str, int]]:
        """A step, and what it emits: mostly as the one before, at times with guests, drafts, or one that waits."""
        random, scheduled = self.random, {}
        new = [f"r{self.made + i}" for i in range(random.choice((0, 0, 0, 0, 0, 1, 3)))]
        self.made += len(new)
        gone = [name for name in self.running if random.random() < 0.05]
        self.gone.update(gone)
        self.running = [name for name in self.running if name not in gone] + new
        width = random.choice((1, 1, 1, 1, 1, 1, 2))
        for name in self.running:
            scheduled[name] = 8 if name in new else width
        if len(scheduled) > 1 and random.random() < 0.1:
            del scheduled[random.choice(self.running)]
        new = [name for name in new if name in scheduled]
        emitted = {name: random.randint(1, n) if n == width else 1 for name, n in scheduled.items()}
        if emitted and random.random() < 0.1:
            del emitted[random.choice(list(emitted))]
        output = Output(scheduled, new=tuple(new), finished_req_ids=set(gone))
        return output, emitted


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ahead", [0, 1])
def test_every_token_is_its_request_s(tmp_path: Path, clock: Clock, utils: object, seed: int, ahead: int) -> None:
    """ahead: steps that are scheduled before an earlier one has emitted."""
    ours, load = process(tmp_path / "a.stall", clock), Load(seed)
    the_core = core(clock, Worker(clock, utils))  # type: ignore[arg-type]
    engine, scheduler = Engine(the_core, ours), the_core.scheduler
    flying: deque[tuple[Output, dict[str, int]]] = deque()
    expected: list[Counter[str]] = []
    arrived = 0
    for _ in range(80):
        output, emitted = load.output()
        while arrived < load.made:
            scheduler.add_request(request(f"r{arrived}"))
            arrived += 1
        if not output.num_scheduled_tokens:
            continue
        scheduler.schedule(output)
        flying.append((output, emitted))
        if load.random.random() < 0.03:
            flying.pop()  # it fails, and never emits
        while len(flying) > ahead:
            output, emitted = flying.popleft()
            emitted = {name: n for name, n in emitted.items() if name not in load.gone}
            scheduler.update_from_output(output, emitted)
            expected.append(Counter(emitted))
        if load.random.random() < 0.1:
            engine.later.flush()
    engine.later.flush()
    assert ours.recorder is not None
    assert ours.hooks.errors == 0
    ours.recorder.close()
    run = sb.open(tmp_path / "a.stall")
    found: dict[int, Counter[str]] = {}
    for step, who, tokens in zip(run.emissions.step, run.emissions.request, run.emissions.tokens, strict=True):
        found.setdefault(int(step), Counter())[run.requests.names[int(who)]] += int(tokens)
    assert [found[step] for step in sorted(found)] == [one for one in expected if one]
