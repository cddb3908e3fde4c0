"""Costs that were planted are found again, and what another setting would have given is what it gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from predict_logs import HEAP, LAWS, SETTINGS, SIZES, planted, recorded

from stallbook.errors import StallbookError
from stallbook.predict.answer import base_of, ceiling, predict
from stallbook.predict.costs import PAIRS, TOKEN, DemoCosts, _prefill
from stallbook.predict.heap import Collector, HeapFit
from stallbook.predict.laws import fit_law
from stallbook.predict.model import Model, fit, simulate_with
from stallbook.predict.outcome import brief, outcome
from stallbook.predict.pace import STALL
from stallbook.predict.pool import Job, runner
from stallbook.report.predicted import Told, dumps

COLD = {"pass with a prompt": 500_000, "pass behind one": 450_000}


@pytest.fixture(scope="module")
def model() -> Model:
    return fit(planted())


def test_the_planted_laws_are_found(model: Model) -> None:
    for name, terms in (("prefill", 3), ("swap_out", 2), ("swap_in", 2), ("output", 2), ("sched", 3), ("close", 2)):
        found, law = model.costs.laws[name], LAWS[name]
        assert found.terms == law.terms
        assert found.rows > 5
        assert np.allclose(found.coefficients[:terms], law.coefficients[:terms], rtol=0.02), name
    captured = model.costs.laws["captured"]
    for term, wanted, within in (("kv token", 150, 0.1), *((term, ns, 0.15) for term, ns in COLD.items())):
        assert np.isclose(captured[term], wanted, rtol=within), term


def test_a_step_costs_what_it_was_planted_to(model: Model) -> None:
    table = model.seen.tables["decode"]
    assert (table["ns"] > 0).all()
    off = np.abs(model.noise.factor - 1)
    assert np.median(off) < 0.01
    assert off.mean() < 0.02


def test_sizes_that_are_off_the_line_are_seen(model: Model) -> None:
    law, sizes = model.costs.laws["captured"], model.costs.sizes
    for size in (1, 2, 4, 8, 16):
        wanted = 250_000 + 180_000 * size + SIZES.get(size, 0.0)
        found = law["step"] + law["row"] * size + sizes[size]
        assert np.isclose(found, wanted, rtol=0.12), size


def whole_prompts(random: np.random.Generator) -> tuple[Any, Any]:
    """Tokens of chunks that nothing came before, and what they take by a law of 500 us and 12 us a token."""
    tokens = random.integers(16, 1024, 800)
    return tokens, 500_000 + 12_000 * tokens * (1 + tokens / (2 * PAIRS))


def test_small_chunks_cost_in_all_what_they_took_in_all() -> None:
    tokens, due = whole_prompts(np.random.default_rng(3))
    law, groups = _prefill({"tokens": tokens, "start": 0 * tokens}, np.where(tokens <= 128, 1.5, 1.0) * due)
    assert law[TOKEN] == pytest.approx(12_000, rel=0.05)
    assert groups[0] == pytest.approx(1.5, rel=0.2)
    assert groups[0] > 1.25 > 1.1 > max(groups[1:])


def test_a_chunk_that_was_held_up_makes_none_like_it_dearer() -> None:
    random = np.random.default_rng(3)
    tokens, due = whole_prompts(random)
    held = (tokens <= 128) & (random.random(800) < 0.1)
    _, groups = _prefill({"tokens": tokens, "start": 0 * tokens}, due + np.where(held, 14e6, 0.0))  # 10 times the law
    assert groups[0] < 1 + 0.1 * (STALL - 1) + 0.05


def test_a_chunk_behind_others_attends_to_them_and_pays_no_more() -> None:
    tokens, due = whole_prompts(np.random.default_rng(3))
    outgrown = due + 4_000 * np.maximum(tokens - 256, 0)  # products that outgrow a cache look like more pairs
    law, groups = _prefill({"tokens": tokens, "start": 0 * tokens}, outgrown)
    costs = DemoCosts({**LAWS, "prefill": law}, {}, {}, groups)
    more = costs.prefill(1024, 256) - costs.prefill(0, 256)
    assert more == pytest.approx(12_000 * 256 * 1024 / PAIRS, rel=0.35)


def test_the_heap_is_read_off_the_collections(model: Model) -> None:
    assert model.heap is not None
    assert np.isclose(model.heap.token_objects, HEAP.token_objects, rtol=0.03)
    assert abs(model.heap.step_objects - HEAP.step_objects) < 4
    assert np.isclose(model.heap.young_ns, HEAP.young_ns, rtol=0.01)
    assert np.isclose(model.heap.object_ns, HEAP.object_ns, rtol=0.15)


def test_its_own_run_comes_back(model: Model) -> None:
    own, was = brief(simulate_with(model, model.settings)), outcome(planted())
    for name in ("itl.p50", "itl.p90", "itl.p99", "ttft.p50", "tokens_per_s"):
        assert np.isclose(own[name], was[name], rtol=0.06), name


@pytest.mark.parametrize(
    "change",
    [{"token_budget": 256}, {"admit_watermark": 0.1}, {"kv_blocks": 1400}, {"max_num_seqs": 20}, {"gc_freeze": True},
     {"preemption": "recompute"}, {"tokenize": "process", "token_budget": 512}],
    ids=str,
)  # fmt: skip
def test_another_setting_gives_what_it_was_predicted_to(model: Model, change: dict[str, object]) -> None:
    said, true = brief(simulate_with(model, replace(SETTINGS, **change))), outcome(planted(**change))
    for name in ("itl.p50", "itl.p90", "itl.p99", "ttft.p50"):
        assert np.isclose(said[name], true[name], rtol=0.12), (name, said[name], true[name])
    assert abs(said["preemptions"] - true["preemptions"]) <= max(6, 0.2 * true["preemptions"])


def test_a_machine_that_is_slower_is_slower_in_all(model: Model) -> None:
    assert model.speed is not None
    slow = replace(model.speed, values=1.1 * model.speed.values)
    at = brief(simulate_with(model, model.settings, speed=slow))
    assert np.isclose(at["itl.p50"], brief(simulate_with(model, model.settings, level=1.1))["itl.p50"], rtol=0.001)


def test_a_drawn_replica_is_repeatable_and_not_the_same(model: Model) -> None:
    noisy = replace(
        model, noise=replace(model.noise, factor=model.noise.factor * np.linspace(0.8, 1.2, len(model.noise.t)))
    )
    first, again, other = (brief(simulate_with(noisy, noisy.settings, draw=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_prediction_has_intervals_a_ceiling_and_assumptions(model: Model) -> None:
    with runner(model.engine, workers=1) as run:
        base = base_of(model, run)
        told = predict(base, [{"token_budget": 256}, {"kv_blocks": 1400}], run, replicas=3)
    for one in told:
        f = one.figures["itl.p99"]
        assert f.low <= f.value <= f.high
        assert one.assumptions
        assert abs(sum(one.share.values()) - 1) < 1e-6
    assert told[0].ceiling == ceiling(base, {"token_budget": 256})
    assert told[0].ceiling is not None
    assert told[0].ceiling["itl.p99"] <= base.measured["itl.p99"]
    assert not base.refusal


def test_a_model_that_misses_its_own_run_says_nothing(model: Model) -> None:
    wrong = replace(model, costs=replace(model.costs, sizes=dict.fromkeys(model.costs.sizes, 3000000.0)))
    with runner(wrong.engine, workers=1) as run:
        with pytest.raises(StallbookError) as refused:
            base_of(wrong, run)
        assert refused.value.slug == "misfit"
        assert "itl.p50" in refused.value.what
        assert base_of(wrong, run, force=True).refusal


@pytest.mark.slow
def test_jobs_give_the_same_in_other_processes(model: Model) -> None:
    jobs = [Job(replace(model.settings, token_budget=n)) for n in range(256, 264)]
    with runner(model.engine, workers=2) as two, runner(model.engine, workers=1) as one:
        assert two(jobs) == one(jobs)


@pytest.mark.parametrize("python", ["/bin/false", str(Path(__file__))], ids=["ends-at-once", "may-not-be-run"])
def test_where_no_other_process_starts_this_one_simulates(
    model: Model, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallbook.predict.pool.get_executable", lambda: python)
    jobs = [Job(replace(model.settings, token_budget=n)) for n in range(256, 264)]
    with runner(model.engine, workers=2) as run:
        assert run(jobs) == [job.run(model.engine) for job in jobs]


def test_a_prediction_from_a_log_that_is_not_whole_says_so(model: Model) -> None:
    cut = replace(model, run=replace(model.run, notes={"cut_bytes": 70}))
    with runner(cut.engine, workers=1) as run:
        text = dumps(Told(base_of(cut, run), []), "text")
    assert "NOT WHOLE: 70 bytes of it could not be read" in " ".join(text.split())


def test_a_real_run_has_a_model() -> None:
    found = fit(recorded("swap"))
    assert found.heap is not None
    assert np.isclose(found.heap.token_objects, 7, rtol=0.15)
    assert fit(recorded("recompute")).seen.replay.exact
    elsewhere = fit(recorded("process"))
    assert elsewhere.notes
    assert all(r.tok_ns >= 0 for r in elsewhere.requests)


def test_a_log_of_another_engine_is_refused() -> None:
    with pytest.raises(StallbookError) as refused:
        fit(replace(planted(), engine="vllm 1"))
    assert refused.value.slug == "no-model"


def test_a_law_has_no_negative_term_and_is_not_bent_by_outliers() -> None:
    x = np.arange(1.0, 200.0)
    y = 1000 + 50 * x
    y[::10] *= 7
    law = fit_law(("one", "x", "square"), np.stack([np.ones_like(x), x, -x * x], axis=1), y)
    assert np.allclose(law.coefficients, (1000, 50, 0), rtol=1e-3)
    assert law.bias > 1.2
    assert fit_law(("one",), np.ones((0, 1)), np.ones(0)).coefficients == (0.0,)


def test_the_collector_counts_as_cpython_does() -> None:
    fit = HeapFit(7.0, 0.0, 40_000.0, 10_000.0, 1.0, 10.0, 0.01, 0, 0)
    heap = Collector(fit)
    seen = [pause for _ in range(40_000) if (pause := heap.allocate(1)) is not None]
    kinds = [kind for kind, _ in seen]
    assert kinds[:24] == [0] * 11 + [1] + [0] * 11 + [1]
    assert 2 in kinds
    first = kinds.index(2)
    assert kinds[:first].count(1) >= 11
    frozen = Collector(fit.frozen())
    full = [ns for _ in range(40_000) if (pause := frozen.allocate(1)) is not None for k, ns in [pause] if k == 2]
    assert full
    assert full[0] < seen[first][1]
    assert not [1 for _ in range(10_000) if Collector(fit.compact()).allocate(24) is not None]
