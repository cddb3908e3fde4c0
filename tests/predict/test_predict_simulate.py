"""The simulated engine is the demonstrator's engine: at the same costs it does the same things at the same times."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import stallbook as sb
from demo.demo_fakes import US, LateIntake, engine_of
from stallbook.demo.scheduler import CAPTURED, NO_GRAPH, Limits, Plan, Sequence, State, commit, plan
from stallbook.demo.steady import commit_steady, steady_steps
from stallbook.demo.workload import Arrival
from stallbook.log.draft import TABLES, Draft
from stallbook.predict.policy import DemoPolicy
from stallbook.predict.ports import Request
from stallbook.predict.simulate import Setup, simulate
from stallbook.predict.trail import Trail
from stallbook.run import Run


class FakeCosts:
    """What `demo_fakes.FakeExecutor` takes."""

    mixed = False

    def sched(self, step: Plan) -> float:
        return 0

    def swap_out(self, tokens: int) -> float:
        return US * tokens

    swap_in = swap_out

    def prefill(self, start: int, tokens: int) -> float:
        return 10 * US * tokens

    def forward(self, step: Plan, kv: int, since: int) -> float:
        return 100 * US * step.padded if step.graph == CAPTURED else 300 * US * len(step.decodes)

    def output(self, tokens: int) -> float:
        return 0

    def close(self, step: Plan) -> float:
        return 0


def workload(seed: int, count: int = 60) -> list[Arrival]:
    random, t, trace = Random(seed), 0, []
    for i in range(count):
        t += int(random.expovariate(1 / 40e6))
        trace.append(Arrival(f"r{i}", t, "x" * random.randint(1, 300), random.randint(1, 200)))
    return trace


LIMITS = [
    Limits(kv_blocks=120, max_num_seqs=12, token_budget=256, capture_sizes=(1, 2, 4, 8)),
    Limits(kv_blocks=80, max_num_seqs=20, token_budget=64, capture_sizes=(1, 2, 4), admit_watermark=0.1),
    Limits(kv_blocks=70, max_num_seqs=9, token_budget=9, recompute=True),
    Limits(kv_blocks=60, max_num_seqs=30, token_budget=200, capture_sizes=(), recompute=True, admit_watermark=0.05),
    Limits(kv_blocks=90, max_num_seqs=20, token_budget=150, decode_weight=9.5, context_weight=0.004, forecast=True),
]


def simulated(trace: list[Arrival], limits: Limits, **more: object) -> Trail:
    requests = [Request(a.name, a.at_ns, len(a.text), a.max_new, US * len(a.text)) for a in trace]
    return simulate(requests, Setup(DemoPolicy(limits), FakeCosts(), **more))


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("seed", range(4))
def test_does_what_the_engine_does_when_it_does_it(limits: Limits, seed: int) -> None:
    trace = workload(seed)
    engine, clock, _, tape = engine_of(trace, limits)
    start = clock.now()
    engine.run()
    trail = simulated(trace, limits)
    done = [(*call[1:5], call[5] - start) for call in tape.of("end")]
    c = trail.columns()
    names = ("graph", "padded", "decode_tokens", "kv_tokens", "t1")
    assert list(zip(*(c[name].tolist() for name in names), strict=True)) == done
    assert [call[1] - start for call in tape.of("emit")] == c["emit"][c["decode_tokens"] > 0].tolist()
    assert c["blocked"].tolist() == tape.blocked
    evicted = [(call[1], call[4] - start) for call in tape.of("evict")]
    assert evicted == [(event[0], event[1]) for event in trail.evictions]
    back = sorted((call[1], call[2] - start) for call in tape.of("readmit"))
    assert back == sorted((event[0], event[2]) for event in trail.evictions)
    assert trail.restarts == engine.counts.restarts
    assert {call[1]: call[2] - start for call in tape.of("admit")} == trail.admit
    assert {call[1]: call[2] - start for call in tape.of("finish")} == trail.finish


def test_a_prompt_that_is_tokenized_elsewhere_stalls_nobody() -> None:
    trace = [Arrival("a", 0, "x" * 20, 100), Arrival("b", 3_000_000, "x" * 2000, 5)]
    limits = Limits(capture_sizes=(1, 2))
    engine, _, _, tape = engine_of(trace, limits, intake=LateIntake)
    engine.run()
    trail = simulated(trace, limits, on_loop=False)
    assert not [piece for piece in trail.pieces if piece[1] == 6]
    assert len(trail.steps) == len(tape.of("end"))


def test_a_run_that_is_stopped_leaves_the_rest_unserved() -> None:
    trail = simulated(workload(1), LIMITS[0], stop_ns=500_000_000)
    assert 500_000_000 <= trail.end_ns < 700_000_000
    assert len(trail.finish) < 60


@pytest.mark.parametrize("limits", LIMITS)
def test_a_steady_plan_is_what_the_scheduler_would_plan_again(limits: Limits) -> None:
    for seed in range(20):
        random, one, many, key = Random(seed), State(limits.kv_blocks), State(limits.kv_blocks), 0
        for _ in range(150):
            if random.random() < 0.3 and key < 60:
                prompt, new = random.randint(1, 250), random.randint(1, 120)
                for state in (one, many):
                    state.add(Sequence(key, prompt, new), limits)
                key += 1
            step = plan(many, limits)
            times = min(steady_steps(many, limits, step), random.choice([1, 3, 1000]))
            for _ in range(times):
                each = plan(one, limits)
                assert shape(each) == shape(step)
                finished = commit(one, each)
            assert [s.key for s in commit_steady(many, step, times)] == [s.key for s in finished]
            assert one.free == many.free
            assert [(s.key, s.computed) for s in one.running] == [(s.key, s.computed) for s in many.running]


def shape(step: Plan) -> tuple[object, ...]:
    return (
        [s.key for s in step.decodes], [s.key for s in step.readmit], [e.seq.key for e in step.evict],
        [(c.seq.key, c.start, c.tokens, c.admitted) for c in step.chunks], step.graph, step.padded, step.blocked,
    )  # fmt: skip


def redrafted(run: Run) -> Run:
    """The same run told to the readers' checks."""
    draft = Draft(engine=run.engine, records=run.records)
    for name in run.requests.names:
        draft.request(name)
    names = [draft.name(name) for name in run.names]
    r, s, p, e, ev = run.requests, run.steps, run.pauses, run.emissions, run.evictions
    every = np.arange(len(r.names))
    columns = {"request": every, "t": r.arrive, "prompt_tokens": r.prompt_tokens, "max_tokens": r.max_tokens}
    draft.extend("arrivals", columns)
    for table, t in (("admits", r.admit), ("finishes", r.finish)):
        draft.extend(table, {"request": every, "t": t})
    draft.extend("steps", {name: getattr(s, name) for name in TABLES["steps"]})
    g = run.segments
    draft.extend(
        "segments", {name: getattr(g, name) for name in TABLES["segments"]} | {"name": np.array(names)[g.name]}
    )
    draft.extend("pauses", {"t0": p.t0, "t1": p.t1, "generation": p.generation, "process": np.array(names)[p.process]})
    draft.extend("emits", {"step": e.step, "t": s.emit[e.step], "request": e.request, "tokens": e.tokens})
    draft.extend("evictions", {name: getattr(ev, name) for name in TABLES["evictions"]})
    step = np.repeat(s.id, np.diff(run.members.start))
    draft.extend("members", {"step": step, "request": run.members.request})
    draft.extend("members_known", {"step": s.id})
    return draft.finish()


@pytest.mark.parametrize("limits", LIMITS)
def test_the_run_is_one_that_a_reader_would_make(limits: Limits) -> None:
    run = simulated(workload(7), limits).run()
    again = redrafted(run)
    for table in ("steps", "emissions", "evictions", "members", "requests"):
        for name, column in vars(getattr(run, table)).items():
            assert np.array_equal(column, getattr(getattr(again, table), name)), (table, name)
    for name in ("step", "t0", "t1", "request", "run_delay"):
        assert np.array_equal(getattr(run.segments, name), getattr(again.segments, name)), name
    assert not again.notes


def test_its_gaps_are_partitioned_like_any_others() -> None:
    run = simulated(workload(3), LIMITS[0]).run()
    for rules in ("full", "post"):
        p = sb.partition(run, rules)
        assert p.reconcile.max_error_ns == p.reconcile.negative_parts == 0
        assert p.reconcile.skipped_steps_unexplained == 0
    assert run.steps.graph.tolist().count(NO_GRAPH) > 0
