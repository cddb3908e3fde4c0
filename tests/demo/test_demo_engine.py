"""The engine on a fake clock: what it records, to the nanosecond, and that every policy gives the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from demo_fakes import US, FakeClock, FakeExecutor, FakeIntake, LateIntake, Tape, engine_of

from stallbook.demo.engine import Engine
from stallbook.demo.history import CompactHistory, ObjectHistory
from stallbook.demo.scheduler import Limits
from stallbook.demo.summary import Progress, Stop
from stallbook.demo.workload import Arrival

S = 1_000_000_000
"""The fake clock's start."""


def arrival(index: int, at_us: int, prompt: int, new: int) -> Arrival:
    return Arrival(f"r{index}", at_us * US, "x" * prompt, new)


def crowd(count: int = 8, prompt: int = 40, new: int = 60) -> list[Arrival]:
    return [arrival(i, 100 * i, prompt + i, new) for i in range(count)]


TIGHT = {"kv_blocks": 24, "token_budget": 64, "max_num_seqs": 8}
"""Room for about three of the crowd at their full length."""


def test_the_records_of_two_requests_to_the_nanosecond() -> None:
    engine, _, _, tape = engine_of([arrival(0, 0, 20, 2), arrival(1, 50, 10, 1)], Limits(token_budget=100))
    engine.run()
    us = lambda n: S + n * US  # noqa: E731
    assert [call for call in tape.calls if call[0] != "enter" or call[1] != "sched"] == [
        ("begin", us(0)),
        ("arrive", "r0", -1, 2, us(0)),
        ("enter", "tok", 0, us(0)),
        ("prompt", 0, 20, us(20)),
        ("admit", 0, us(20)),
        ("enter", "prefill", 0, us(20)),
        ("prefill", 20, us(20)),
        ("member", 0, us(20)),
        ("end", 0, -1, 0, 0, us(220)),
        ("begin", us(220)),
        ("arrive", "r1", -1, 1, us(50)),  # stamped when it arrived, not when the busy loop looked
        ("enter", "tok", 1, us(220)),
        ("prompt", 1, 10, us(230)),
        ("admit", 1, us(230)),
        ("enter", "prefill", 1, us(230)),
        ("prefill", 10, us(230)),
        ("member", 1, us(230)),
        ("join", 0, us(330)),
        ("enter", "decode", -1, us(330)),
        ("leave", us(430)),
        ("emit", us(430)),
        ("enter", "output", -1, us(430)),
        ("end", 1, 1, 1, 21, us(430)),
        ("begin", us(430)),
        ("join", 1, us(430)),
        ("enter", "decode", -1, us(430)),
        ("leave", us(630)),
        ("emit", us(630)),
        ("enter", "output", -1, us(630)),
        ("finish", 0, us(630)),
        ("finish", 1, us(630)),
        ("end", 1, 2, 2, 33, us(630)),
    ]


def served(
    limits: Limits, trace: list[Arrival], **more: Any
) -> tuple[Engine, Tape, FakeExecutor, dict[str, list[int]]]:
    told: dict[str, list[int]] = {}

    class Tokens(CompactHistory):
        def add(self, request: str, index: int, token: int, at_ns: int) -> None:
            told.setdefault(request, []).append(token)

    engine, _, executor, tape = engine_of(trace, limits, history=Tokens(), **more)
    engine.run()
    return engine, tape, executor, told


@pytest.mark.parametrize("recompute", [False, True])
def test_preemption_changes_when_but_not_what(recompute: bool) -> None:
    _, _, _, plenty = served(Limits(kv_blocks=1000), crowd())
    engine, tape, executor, tight = served(Limits(**TIGHT, recompute=recompute), crowd())
    assert tight == plenty
    assert engine.counts.evictions > 3
    assert engine.counts.finished == 8
    assert engine.state.free == TIGHT["kv_blocks"]
    assert not executor.cached
    assert not executor.host
    evictions, readmissions = tape.of("evict"), tape.of("readmit")
    assert len(evictions) == len(readmissions) == engine.counts.evictions
    for handle in range(8):  # evicted, readmitted, evicted, ...: never twice the same in a row
        own = [call for call in tape.of("evict", "readmit") if call[1] == handle]
        assert [call[0] for call in own] == ["evict", "readmit"] * (len(own) // 2)
    assert all(call[2] is recompute for call in evictions)
    assert all((call[3] > 40) is recompute for call in evictions)  # the tokens that were lost
    assert len(tape.of("restart")) == engine.counts.restarts


def test_a_swap_is_stamped_before_the_copy_out_and_after_the_copy_in() -> None:
    _, tape, _, _ = served(Limits(**TIGHT), crowd())
    for i, call in enumerate(tape.calls):
        if call[0] == "evict":
            opened, closed = tape.calls[i + 1], tape.calls[i + 2]
            assert opened == ("enter", "swap", call[1], call[-1])
            assert closed[:2] == ("enter", "sched")
            assert closed[-1] > call[-1]
        if call[0] == "readmit":
            opened = tape.calls[i - 1]
            assert opened[:3] == ("enter", "swap", call[1])
            assert opened[-1] < call[-1]


def test_recompute_prefills_the_prompt_and_the_output_again_as_the_request_s_own_chunks() -> None:
    _, tape, executor, _ = served(Limits(**TIGHT, recompute=True), crowd())
    lost = sum(call[3] for call in tape.of("evict"))
    again = sum(call[3] for call in executor.calls if call[0] == "prefill") - sum(40 + i for i in range(8))
    assert 0 < again <= lost  # what was lost twice, in the middle of its recomputation, is counted twice
    owners = {call[2] for call in tape.of("enter") if call[1] == "prefill"}
    assert owners == set(range(8))


def test_the_batch_is_told_by_its_changes_only() -> None:
    engine, tape, _, _ = served(Limits(**TIGHT), crowd())
    assert len(tape.of("join")) == 8 + engine.counts.evictions - len(
        [c for c in tape.of("readmit") if evicted_again_before_it_decoded(tape, c)]
    )


def evicted_again_before_it_decoded(tape: Tape, readmit: tuple[Any, ...]) -> bool:
    later = tape.calls[tape.calls.index(readmit) :]
    return next(c[0] for c in later if c[0] in ("join", "evict") and c[1] == readmit[1]) == "evict"


def test_batches_above_the_largest_capture_run_eagerly() -> None:
    engine, tape, executor, _ = served(Limits(capture_sizes=(1, 2, 4)), crowd(6, new=5))
    ends = tape.of("end")
    assert {(call[1], call[2]) for call in ends if call[3] > 4} == {(2, -1)}
    assert {(call[1], call[2]) for call in ends if call[3] == 3} <= {(1, 4)}
    assert engine.counts.eager_steps == sum(call[0] == "eager" for call in executor.calls) > 0


def test_kv_tokens_are_those_that_the_real_rows_attend() -> None:
    _, tape, _, _ = served(Limits(capture_sizes=(8,)), [arrival(0, 0, 20, 3)])
    assert [call[4] for call in tape.of("end")] == [0, 21, 22, 23]


def test_a_busy_engine_leaves_nothing_between_two_steps() -> None:
    class Late:
        """Whoever looks at it loses 7 us."""

        def __init__(self, clock: FakeClock) -> None:
            self.clock, self.sleep = clock, clock.sleep

        def now(self) -> int:
            self.clock.t += 7 * US
            return self.clock.t

    trace = [arrival(0, 0, 20, 30), arrival(1, 50_000, 20, 30)]
    engine, _, _, tape = engine_of(trace, Limits(), clock=Late)
    engine.run()
    begins, ends = ([call[-1] for call in tape.of(name)] for name in ("begin", "end"))
    apart = [begin - end for end, begin in zip(ends, begins[1:], strict=False)]
    assert [d for d in apart if d] == [max(apart)]  # it idled once, until the second request came
    first = [tape.calls[tape.calls.index(call) + 1] for call in tape.of("begin")]
    assert [(c[0], c[1], c[-1]) for c in first] == [("enter", "sched", begin) for begin in begins]


def test_an_idle_engine_sleeps_until_the_next_arrival_and_records_no_step() -> None:
    engine, _, _, tape = engine_of([arrival(0, 500_000, 10, 1)], Limits())
    engine.run()
    assert len(tape.of("begin")) == 2
    assert tape.of("begin")[0] == ("begin", S + 500_000 * US)


def test_a_late_tokenizer_holds_back_its_request_alone() -> None:
    engine, _, _, tape = engine_of([arrival(0, 0, 10, 30), arrival(1, 100, 10, 1)], Limits(), intake=LateIntake)
    engine.run()
    assert engine.counts.finished == 2
    assert not [call for call in tape.of("enter") if call[1] == "tok"]
    assert [call[4] for call in tape.of("arrive")] == [S, S + 100 * US]
    assert len(tape.of("begin")) - len(tape.of("drop")) == len(tape.of("end"))


def test_a_run_past_its_drain_limit_ends_and_says_what_is_left() -> None:
    trace = [arrival(i, i, 200, 900) for i in range(50)]
    engine, clock, _, tape = engine_of(trace, Limits(), seconds=0.1, drain_seconds=0.4)
    engine.run()
    assert engine.drain_limit_hit
    assert engine.load == 50 - engine.counts.finished > 0
    assert len(tape.of("finish")) == engine.counts.finished
    assert clock.t < S + 600_000 * US


def test_a_stop_ends_the_run_between_two_steps() -> None:
    stop = Stop()
    engine, _, _, tape = engine_of(
        [arrival(0, 0, 10, 900)], Limits(capture_sizes=(8,)), stop=stop, seconds=1.0,
        progress=lambda tick: stop.request() if tick.tokens > 100 else None,
    )  # fmt: skip
    engine.run()
    assert 100 < engine.counts.tokens < 900
    assert tape.calls[-1][0] != "begin"
    assert not engine.drain_limit_hit


def test_progress_comes_about_five_times_a_second() -> None:
    ticks: list[Progress] = []
    engine, clock, _, _ = engine_of(
        [arrival(i, i * 100_000, 10, 5) for i in range(20)], Limits(), progress=ticks.append, seconds=1.0
    )
    engine.run()
    length = (clock.t - S) / 1e9
    assert 4 * length <= len(ticks) <= 5 * length + 2
    assert {tick.phase for tick in ticks} == {"serving", "draining"}


def test_the_probe_has_a_segment_of_its_own() -> None:
    class Probe:
        def __init__(self, clock: FakeClock) -> None:
            self.clock, self.next = clock, 0

        def due(self, now_ns: int) -> bool:
            return now_ns >= self.next

        def sample(self) -> int:
            self.clock.t += 50 * US
            self.next = self.clock.t + 10_000 * US
            return 50 * US

    engine, _, _, tape = engine_of([arrival(0, 0, 10, 300)], Limits(), probe=Probe)
    engine.run()
    probes = [i for i, call in enumerate(tape.calls) if call[0] == "probe"]
    assert 2 <= len(probes) <= 5
    for i in probes:
        assert tape.calls[i - 1][:2] == ("enter", "probe")
        assert tape.calls[i - 1][-1] == tape.calls[i][-1] - 50 * US


def test_the_real_recorder_keeps_the_same_run(tmp_path: Path) -> None:
    import stallbook as sb
    from stallbook.record import Recorder

    clock = FakeClock()
    out = tmp_path / "x.stall"
    recorder = Recorder(out, engine="fake", clock=clock.now, os_counters=None, gc_pauses=False, strict=True)
    parts = {"executor": FakeExecutor(clock), "intake": FakeIntake(clock), "recorder": recorder}
    engine = Engine(crowd(), Limits(**TIGHT), clock=clock.port, history=CompactHistory(), **parts)  # type: ignore[arg-type]
    engine.run()
    recorder.close()
    run = sb.open(out)
    assert len(run.steps.id) == engine.counts.steps
    assert int(run.emissions.tokens.sum()) == engine.counts.tokens == 8 * 60
    assert run.preemptions in (-1, engine.counts.evictions + engine.counts.restarts)
    assert len(run.evictions.t0) == engine.counts.evictions
    assert list(run.requests.prompt_tokens) == [40 + i for i in range(8)]
    p = sb.partition(run)
    assert p.reconcile.max_error_ns == 0
    assert p.reconcile.skipped_steps_unexplained == 0


@pytest.mark.parametrize("history", [ObjectHistory(), CompactHistory()])
def test_a_history_keeps_every_token(history: ObjectHistory | CompactHistory) -> None:
    for i in range(10):
        history.add("r1", 1, i, i)
    kept = history.records if isinstance(history, ObjectHistory) else history.values
    assert len(kept) in (10, 80)
    if isinstance(history, ObjectHistory):
        assert all(len(record.top) == 5 for record in history.records)
