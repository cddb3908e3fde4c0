"""The model: every way to compute a token gives the same token, and discarded work stays discarded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from demo_fakes import FakeClock, FakeExecutor, FakeIntake, Tape
from threadpoolctl import threadpool_limits

from stallbook.demo.capacity import Capacity, arrival_rate, measure
from stallbook.demo.engine import Engine
from stallbook.demo.history import CompactHistory
from stallbook.demo.machine import REAL_CLOCK
from stallbook.demo.model import VOCABULARY, KvSlots, Model, NumpyExecutor
from stallbook.demo.ports import Tokenized
from stallbook.demo.probe import Probe
from stallbook.demo.scheduler import Limits
from stallbook.demo.workload import MEAN_NEW, Arrival
from stallbook.record import NullRecorder


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


class Letters:
    """Tokens from letters, so that no tokenizer has to be trained here."""

    on_loop = True

    def submit(self, key: int, text: str) -> list[int] | None:
        return [(7 * ord(letter) + 31 * i) % VOCABULARY for i, letter in enumerate(text)]

    def poll(self) -> list[Tokenized]:
        return []

    def close(self) -> None:
        pass


class Told(CompactHistory):
    def __init__(self) -> None:
        super().__init__()
        self.tokens: dict[str, list[int]] = {}

    def add(self, request: str, index: int, token: int, at_ns: int) -> None:
        self.tokens.setdefault(request, []).append(token)


def generate(model: Model, limits: Limits) -> tuple[dict[str, list[int]], Engine]:
    trace = [Arrival(f"r{i}", 0, "some prompt of its own "[i:] * (i + 2), 40) for i in range(8)]
    told = Told()
    engine = Engine(
        trace, limits, executor=NumpyExecutor(model, limits.max_num_seqs), intake=Letters(), recorder=NullRecorder(),
        clock=REAL_CLOCK, history=told,
    )  # fmt: skip
    engine.run()
    return told.tokens, engine


def test_captured_eager_chunked_swapped_and_recomputed_tokens_are_the_same(model: Model) -> None:
    expected, plain = generate(model, Limits())
    assert plain.counts.evictions == plain.counts.eager_steps == 0
    assert len({tuple(tokens) for tokens in expected.values()}) == 8
    eager, engine = generate(model, Limits(capture_sizes=(1,)))
    assert engine.counts.eager_steps > 30
    chunked, _ = generate(model, Limits(token_budget=16))
    tight = {"kv_blocks": 22, "max_num_seqs": 8, "token_budget": 64}
    swapped, engine = generate(model, Limits(**tight))
    assert engine.counts.evictions
    recomputed, engine = generate(model, Limits(**tight, recompute=True))
    assert engine.counts.evictions
    for name, tokens in {"eager": eager, "chunked": chunked, "swapped": swapped, "recomputed": recomputed}.items():
        assert tokens == expected, name


def test_padded_rows_are_computed_and_discarded(model: Model) -> None:
    executors = [NumpyExecutor(model, 4) for _ in range(2)]
    for executor in executors:
        for key in (0, 1, 2):
            executor.prefill(key, [5 + key, 17, 99], 0)
    arguments = ([0, 1, 2], [99, 99, 99], [3, 3, 3])
    tight = executors[0].decode(*arguments, padded=3)
    padded = executors[1].decode(*arguments, padded=16)
    assert padded == tight
    for a, b in zip(executors[0].cache.k, executors[1].cache.k, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_attention_reaches_back_to_the_first_token(model: Model) -> None:
    made = []
    for first in (5, 6):
        executor = NumpyExecutor(model, 1)
        executor.prefill(0, [first, *range(100, 120)], 0)
        at, token, tokens = 21, 119, []
        for _ in range(20):
            token = executor.decode([0], [token], [at], 1)[0]
            tokens.append(token)
            at += 1
        made.append(tokens)
    assert made[0] != made[1]


def test_a_swap_is_a_copy_and_gives_its_slab_up() -> None:
    cache = KvSlots(2)
    cache.k[cache.slot(7), :, :5] = 3.0
    held = cache.slot(7)
    cache.swap_out(7, 5)
    cache.k[held] = 0.0
    assert {cache.slot(8), cache.slot(9)} == {0, 1}
    cache.drop(8)
    cache.swap_in(7)
    assert (cache.k[cache.slot(7), :, :5] == 3.0).all()
    cache.drop(7)
    cache.drop(7)
    assert cache.slot(10) != cache.slot(9)


def test_capacity_is_measured_on_the_engine_and_leaves_no_request_behind() -> None:
    clock = FakeClock()
    executor = FakeExecutor(clock)
    found = measure(
        executor=executor, intake=FakeIntake(clock), recorder=Tape(clock), clock=clock.port, history=CompactHistory(),
    )  # fmt: skip
    assert found.windows >= 10
    assert 2000 < found.tokens_per_s < 10_000  # a row costs 0.1 ms; its request's prefill and tokenizing come on top
    assert found.spread < 0.3
    assert not executor.cached


def test_the_rate_asks_for_its_share_of_the_capacity() -> None:
    rate = arrival_rate(Capacity(3000.0, 0.0, 8), load=0.9)
    assert rate == pytest.approx(0.9 * 3000 / MEAN_NEW, abs=0.01)


def test_the_probe_is_due_four_times_a_second() -> None:
    now = [0]
    probe = Probe(lambda: now[0])
    assert not probe.due(249_999_999)
    assert probe.due(250_000_000)
    now[0] = 250_000_000
    assert probe.sample() == 0
    assert not probe.due(now[0])
