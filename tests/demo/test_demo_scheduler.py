"""The scheduler's policy, case by case, and what must hold on every workload."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallbook.demo.blocks import BLOCK_TOKENS, blocks_for
from stallbook.demo.scheduler import (
    ADMITS,
    BY_BUDGET,
    BY_KV,
    BY_SEQS,
    CAPTURED,
    EAGER,
    HEADROOM,
    NO_GRAPH,
    RECOMPUTE,
    RESTART,
    SWAP,
    Chunk,
    Limits,
    Plan,
    Sequence,
    State,
    commit,
    plan,
)  # fmt: skip
from stallbook.demo.work import work_of


def running(key: int, prompt: int, generated: int = 0, max_new: int = 100) -> Sequence:
    return Sequence(key, prompt, max_new, computed=prompt + generated, generated=generated)


def state_of(limits: Limits, *run: Sequence, waiting: tuple[Sequence, ...] = ()) -> State:
    state = State(limits.kv_blocks - sum(blocks_for(seq.computed) for seq in run), running=list(run))
    for seq in waiting:
        state.add(seq, limits)
    return state


def test_blocks_for_rounds_up() -> None:
    assert [blocks_for(n) for n in (0, 1, 16, 17, 32)] == [0, 1, 1, 2, 2]


def test_an_idle_state_gives_an_empty_plan() -> None:
    assert not plan(State(10), Limits(kv_blocks=10))


def test_planning_changes_nothing() -> None:
    limits = Limits(kv_blocks=20)
    state = state_of(limits, running(0, 160), running(1, 160), waiting=(Sequence(2, 16, 4),))
    before = copy.deepcopy(state)
    plan(state, limits)
    assert (state.free, len(state.waiting), len(state.running)) == (before.free, len(before.waiting), 2)
    assert [s.computed for s in state.running] == [s.computed for s in before.running]


def test_decodes_come_first_and_prefill_gets_the_rest_of_the_budget() -> None:
    limits = Limits(token_budget=50)
    waiting = Sequence(2, 100, 4)
    step = plan(state_of(limits, running(0, 10), running(1, 10), waiting=(waiting,)), limits)
    assert [seq.key for seq in step.decodes] == [0, 1]
    assert step.chunks == (Chunk(waiting, 0, 48, admitted=True),)


def test_running_prefills_go_before_waiting_ones() -> None:
    limits = Limits(token_budget=30)
    half, fresh = Sequence(0, 40, 4, computed=20), Sequence(1, 40, 4)
    step = plan(state_of(limits, half, waiting=(fresh,)), limits)
    assert step.chunks == (Chunk(half, 20, 20, admitted=False), Chunk(fresh, 0, 10, admitted=True))


def test_a_dry_pool_evicts_the_newest() -> None:
    limits = Limits(kv_blocks=20)
    old, middle, new = running(0, 160), running(1, 80), running(2, 80)
    step = plan(state_of(limits, old, middle, new), limits)
    assert [(item.seq.key, item.mode) for item in step.evict] == [(2, SWAP)]
    assert [seq.key for seq in step.decodes] == [0, 1]


def test_a_victim_evicts_itself_when_it_is_the_newest() -> None:
    limits = Limits(kv_blocks=20)
    step = plan(state_of(limits, running(0, 150), running(1, 160)), limits)  # the old one has room in its last block
    assert [item.seq.key for item in step.evict] == [1]
    assert [seq.key for seq in step.decodes] == [0]


def test_a_request_in_its_first_prefill_restarts() -> None:
    limits = Limits(kv_blocks=20, token_budget=32)
    old, half = running(0, 160), Sequence(1, 300, 4, computed=160)
    state = state_of(limits, old, half)
    step = plan(state, limits)
    assert [(item.seq.key, item.mode) for item in step.evict] == [(1, RESTART)]
    commit(state, step)
    assert half.computed == 0
    assert [seq.key for seq in state.waiting] == [1]


def test_swap_comes_back_only_with_headroom_to_spare() -> None:
    limits = Limits(kv_blocks=100)
    away = running(1, 160)
    for spare, back in ((HEADROOM - 1, False), (HEADROOM, True)):
        busy = running(0, 16 * (100 - blocks_for(161) - spare) - 5)  # does not need a block itself
        state = state_of(limits, busy)
        state.swapped.append(away)
        assert (plan(state, limits).readmit == (away,)) is back


def test_headroom_and_watermark_yield_in_an_idle_pool() -> None:
    limits = Limits(kv_blocks=12, admit_watermark=0.9)
    state = State(12)
    state.swapped.append(running(0, 160))
    assert [seq.key for seq in plan(state, limits).readmit] == [0]
    assert plan(state_of(limits, waiting=(Sequence(0, 160, 4),)), limits).chunks


def test_the_watermark_keeps_blocks_free() -> None:
    limits = Limits(kv_blocks=100, admit_watermark=0.1)
    for prompt, admitted in ((16 * 80, True), (16 * 81, False)):
        step = plan(state_of(limits, running(0, 155), waiting=(Sequence(1, prompt, 4),)), limits)
        assert bool(step.chunks) is admitted


def test_recompute_goes_to_the_head_of_the_line_and_admits_nobody_in_that_step() -> None:
    limits = Limits(kv_blocks=20, recompute=True)
    old, new, third = running(0, 160), running(1, 150, generated=10), Sequence(2, 8, 4)
    state = state_of(limits, old, new, waiting=(third,))
    step = plan(state, limits)
    assert [(item.seq.key, item.mode) for item in step.evict] == [(1, RECOMPUTE)]
    assert not step.chunks
    commit(state, step)
    assert [seq.key for seq in state.waiting] == [1, 2]
    assert (new.target, new.computed, new.generated) == (160, 0, 10)


def test_prefills_that_block_each_other_yield_to_the_oldest() -> None:
    limits = Limits(kv_blocks=20)
    state = state_of(limits, Sequence(0, 300, 4, computed=160), Sequence(1, 300, 4, computed=160))
    step = plan(state, limits)
    assert [(item.seq.key, item.mode) for item in step.evict] == [(1, RESTART)]
    assert [(chunk.seq.key, chunk.tokens) for chunk in step.chunks] == [(0, 140)]


@pytest.mark.parametrize(
    ("rows", "sizes", "expected"),
    [
        (1, (1, 2, 4), (CAPTURED, 1)),
        (3, (1, 2, 4), (CAPTURED, 4)),
        (4, (1, 2, 4), (CAPTURED, 4)),
        (5, (1, 2, 4), (EAGER, -1)),
        (3, (), (NO_GRAPH, -1)),
    ],
)
def test_the_path_of_a_batch(rows: int, sizes: tuple[int, ...], expected: tuple[int, int]) -> None:
    limits = Limits(capture_sizes=sizes)
    step = plan(state_of(limits, *(running(i, 10) for i in range(rows))), limits)
    assert (step.graph, step.padded) == expected


@pytest.mark.parametrize(("prompt", "new"), [(0, 5), (5, 0), (100, 61)])
def test_a_request_that_can_never_be_served_is_refused(prompt: int, new: int) -> None:
    with pytest.raises(ValueError, match=r"at least one|never fit"):
        State(10).add(Sequence(0, prompt, new), Limits(kv_blocks=10))


REQUESTS = st.lists(st.tuples(st.integers(1, 120), st.integers(1, 80), st.integers(0, 40)), min_size=1, max_size=25)
LIMITS = st.builds(
    Limits,
    kv_blocks=st.integers(13, 60),
    max_num_seqs=st.integers(1, 12),
    token_budget=st.integers(12, 100),
    capture_sizes=st.sampled_from([(), (1, 2, 4), (1, 2, 4, 8, 16)]),
    admit_watermark=st.sampled_from([0.0, 0.1, 0.9]),
    recompute=st.booleans(),
    decode_weight=st.sampled_from([1.0, 0.0, 2.5, 20.0]),
    context_weight=st.sampled_from([0.0, 0.01]),
    forecast=st.booleans(),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(LIMITS, REQUESTS)
def test_every_workload_ends_and_every_step_keeps_the_rules(
    limits: Limits, requests: list[tuple[int, int, int]]
) -> None:
    state = State(limits.kv_blocks)
    arrivals = sorted((at, key, prompt, new) for key, (prompt, new, at) in enumerate(requests))
    alive: dict[int, Sequence] = {}
    done: set[int] = set()
    step_no = idle = 0
    while arrivals or state.busy:
        while arrivals and arrivals[0][0] <= step_no:
            _, key, prompt, new = arrivals.pop(0)
            alive[key] = Sequence(key, prompt, new)
            state.add(alive[key], limits)
        step = plan(state, limits)
        assert step or not state.busy, "a busy engine always has something to do"
        check_plan(state, step, limits)
        done |= {seq.key for seq in commit(state, step)}
        check_state(state, limits, alive, done)
        step_no += 1
        idle = 0 if step.decodes or step.chunks else idle + 1
        assert idle < 50
        assert step_no < 30_000
    assert done == set(range(len(requests)))
    assert state.free == limits.kv_blocks


def check_plan(state: State, step: Plan, limits: Limits) -> None:
    work = sum(work_of(chunk.tokens, chunk.start, limits.context_weight) for chunk in step.chunks)
    assert not work or work <= max(limits.left_for_prefill(len(step.decodes)), 1 if step.decodes else 3) + 1e-6
    gone = {item.seq for item in step.evict}
    ready = [s for s in [*state.running, *step.readmit] if s.computed >= s.target and s not in gone]
    assert list(step.decodes) == ready, "decode first: whoever runs, is ready and was not evicted decodes"
    assert all(chunk.tokens > 0 for chunk in step.chunks)
    assert len({chunk.seq for chunk in step.chunks}) == len(step.chunks)
    if step.evict:  # victims are the newest
        kept = [seq for seq in [*state.running, *step.readmit] if seq not in gone]
        assert [*kept, *(item.seq for item in reversed(step.evict))] == [*state.running, *step.readmit]
    if step.graph == CAPTURED:
        assert step.padded in limits.capture_sizes
        assert step.padded >= len(step.decodes)
    admitted = [chunk for chunk in step.chunks if chunk.admitted]
    others = len(state.running) + len(step.readmit) - len(step.evict) + len(admitted) > 1
    if admitted and others:
        assert free_after(state, step) >= limits.admit_watermark * limits.kv_blocks


def free_after(state: State, step: Plan) -> int:
    free = state.free
    free -= sum(blocks_for(seq.computed) for seq in step.readmit)
    free += sum(blocks_for(item.seq.computed) for item in step.evict)
    free -= sum(blocks_for(chunk.start + chunk.tokens) - blocks_for(chunk.start) for chunk in step.chunks)
    free -= sum(seq.computed % BLOCK_TOKENS == 0 for seq in step.decodes)
    assert free >= 0
    return free


def check_state(state: State, limits: Limits, alive: dict[int, Sequence], done: set[int]) -> None:
    held = sum(blocks_for(seq.computed) for seq in state.running)
    assert state.free + held == limits.kv_blocks, "blocks are conserved"
    assert state.free >= 0
    assert len(state.running) <= limits.max_num_seqs
    places = [seq.key for seq in [*state.waiting, *state.running, *state.swapped]]
    assert sorted([*places, *done]) == sorted(alive), "each request is in exactly one place"
    assert not (limits.recompute and state.swapped)
    assert all(seq.computed == 0 for seq in state.waiting)


@pytest.mark.parametrize(
    ("limits", "tokens", "blocked"),
    [
        (Limits(), 16, ADMITS),
        (Limits(max_num_seqs=1), 16, BY_SEQS),
        (Limits(kv_blocks=12), 100, BY_KV),
        (Limits(kv_blocks=40, admit_watermark=0.9), 100, BY_KV),
        (Limits(token_budget=1), 16, BY_BUDGET),
    ],
)
def test_a_plan_says_what_kept_the_first_waiting_request_out(limits: Limits, tokens: int, blocked: int) -> None:
    state = state_of(limits, running(0, 160, max_new=2), waiting=(Sequence(1, tokens, 4),))
    assert plan(state, limits).blocked == blocked
