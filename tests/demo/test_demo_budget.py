"""The budget that follows a step's work, and admission by what requests will need: on planted states, by hand."""

from __future__ import annotations

from random import Random

import pytest

from demo.test_demo_scheduler import running, state_of
from stallbook.demo import Settings
from stallbook.demo.blocks import blocks_for
from stallbook.demo.forecast import peak_blocks
from stallbook.demo.limits import limits_of
from stallbook.demo.scheduler import BY_BUDGET, BY_KV, Chunk, Limits, Sequence, State, commit, plan
from stallbook.demo.work import tokens_within, work_of


def test_a_decode_takes_its_weight_of_the_budget() -> None:
    new = Sequence(9, 500, 4)
    for rows, left in ((0, 300), (2, 250), (10, 50)):
        limits = Limits(token_budget=300, decode_weight=25)
        step = plan(state_of(limits, *(running(i, 10) for i in range(rows)), waiting=(new,)), limits)
        assert step.chunks == (Chunk(new, 0, left, admitted=True),)


def test_decodes_that_take_the_whole_budget_leave_none_for_prompts() -> None:
    limits = Limits(token_budget=300, decode_weight=25)
    step = plan(state_of(limits, *(running(i, 10) for i in range(13)), waiting=(Sequence(20, 5, 4),)), limits)
    assert (len(step.decodes), step.chunks, step.blocked) == (13, (), BY_BUDGET)


def test_late_tokens_of_a_long_prompt_take_more_of_the_budget() -> None:
    early, late = Sequence(0, 2000, 4), Sequence(0, 2000, 4, computed=1500)
    limits = Limits(token_budget=300, context_weight=0.001)
    for seq, tokens in ((early, 264), (late, 117)):  # n + 0.001 n (start + n / 2) <= 300
        assert [chunk.tokens for chunk in plan(state_of(limits, seq), limits).chunks] == [tokens]


@pytest.mark.parametrize("start", [0, 100, 1999])
@pytest.mark.parametrize("weight", [0.0, 0.001, 0.5])
def test_as_many_tokens_as_the_work_allows(start: int, weight: float) -> None:
    for work in (1, 7, 255.5, 4000):
        tokens = tokens_within(work, start, weight)
        assert work_of(tokens, start, weight) <= work + 1e-6
        assert work_of(tokens + 1, start, weight) > work


def test_work_is_the_sum_over_tokens_however_a_prompt_is_cut() -> None:
    whole = work_of(900, 0, 0.01)
    assert work_of(300, 0, 0.01) + work_of(600, 300, 0.01) == pytest.approx(whole)


def test_a_step_that_does_nothing_else_prefills_at_least_a_token() -> None:
    limits = Limits(token_budget=2, max_num_seqs=2, context_weight=1.0)
    step = plan(state_of(limits, Sequence(0, 200, 4, computed=100)), limits)
    assert [chunk.tokens for chunk in step.chunks] == [1]


def by_hand(requests: list[tuple[int, int]]) -> int:
    """Step by step: who still runs holds what it had and a token more each step."""
    most = max(left for _, left in requests)
    return max(sum(blocks_for(held + s) for held, left in requests if s <= left) for s in range(most + 1))


def test_the_fullest_moment_is_found_without_walking_to_it() -> None:
    random = Random(5)
    for _ in range(200):
        requests = [(random.randint(1, 500), random.randint(1, 300)) for _ in range(random.randint(1, 30))]
        exact = by_hand(requests)
        assert exact <= peak_blocks(requests) <= exact + len(requests)


def test_nobody_needs_anything() -> None:
    assert peak_blocks([]) == 0


def test_who_is_nearly_done_makes_room_for_the_next() -> None:
    """Both pools are as full now; in one of them a request ends before the newcomer needs its blocks."""
    limits = Limits(kv_blocks=40, forecast=True)
    for left, admitted in ((10, True), (200, False)):
        old = running(0, 380, max_new=left)
        new = Sequence(1, 64, 250)
        step = plan(state_of(limits, old, waiting=(new,)), limits)
        assert bool(step.chunks) is admitted
        assert (step.blocked == BY_KV) is not admitted


def test_the_watermark_is_held_against_the_fullest_moment() -> None:
    new = Sequence(1, 160, 160)
    for watermark, admitted in ((0.0, True), (0.5, False)):
        limits = Limits(kv_blocks=50, forecast=True, admit_watermark=watermark)
        assert bool(plan(state_of(limits, running(0, 100), waiting=(new,)), limits).chunks) is admitted


def test_what_is_on_the_host_comes_back_and_counts() -> None:
    limits = Limits(kv_blocks=100, forecast=True)
    away, new = running(2, 900, max_new=600), Sequence(1, 160, 300)
    for swapped in ((), (away,)):
        state = state_of(limits, running(0, 600, max_new=300), waiting=(new,))
        state.swapped.extend(swapped)
        assert bool(plan(state, limits).chunks) is not bool(swapped)


@pytest.mark.parametrize("seed", range(5))
def test_who_is_admitted_by_forecast_is_never_evicted(seed: int) -> None:
    random = Random(seed)
    limits = Limits(kv_blocks=80, max_num_seqs=30, token_budget=64, forecast=True)
    state, key, free_evicts = State(80), 0, 0
    other, plain = State(80), Limits(kv_blocks=80, max_num_seqs=30, token_budget=64)
    for number in range(4000):
        if number < 2000 and random.random() < 0.08:
            prompt, new = random.randint(1, 300), random.randint(1, 200)
            state.add(Sequence(key, prompt, new), limits)
            other.add(Sequence(key, prompt, new), plain)
            key += 1
        step = plan(state, limits)
        assert not step.evict
        commit(state, step)
        free_evicts += len((step := plan(other, plain)).evict)
        commit(other, step)
    assert not state.busy
    assert free_evicts > 10


def test_settings_reach_the_scheduler() -> None:
    limits = limits_of(Settings(admit_by="forecast", decode_weight=26, context_weight=0.0012, preemption="recompute"))
    assert (limits.forecast, limits.decode_weight, limits.context_weight) == (True, 26, 0.0012)
    assert limits.recompute
    assert limits_of(Settings()) == Limits()
