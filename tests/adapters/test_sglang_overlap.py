"""SGLang's overlap loop, on planted timelines, through the adapter's own data path.

`run_batch(N + 1)` starts before the result of N is processed: a batch is paired with its own result. What the host does
behind a busy device is hidden, a pause is charged where it delayed the token, and what nobody hides is charged.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from fake_sglang import Batch, Hooked
from fakes import MS, START, Clock, Stream, gaps

import stallbook as sb
from stallbook.conformance.evidence import busy_ns


def test_a_batch_is_paired_with_its_own_result(tmp_path: Path, clock: Clock) -> None:
    """No device: the host runs the next batch while a result waits. One object is the batch of every decode."""
    served = Hooked(tmp_path / "a.stall", clock, overlap=True)
    overlap = served.scheduler.overlap
    r1, r2 = served.req("r1", limit=5), served.req("r2", prompt=32)
    overlap(Batch([r1], [8]))  # 0 to 9: scheduled in 1, run in 1 + 5 + 1 + 1
    running = Batch([r1])
    overlap(running, 6)  # 9 to 20: 1 + 9, and at 19 the first result
    overlap(Batch([r2], [32]), 20)  # 20 to 45: a prefill, while the decode's result waits until 44
    running.reqs = [r1, r2]  # the object whose result waits changes under it
    overlap(running, 5)
    overlap(running, 5)
    overlap(running, 5)  # r1 is over its limit: its last result was still under way
    overlap(None)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.notes == {}
    names = run.requests.names
    members = [sorted(names[i] for i in run.members.request[a:b]) for a, b in pairwise(run.members.start.tolist())]
    assert members == [["r1"], ["r1"], ["r2"], ["r1", "r2"], ["r1", "r2"], ["r1", "r2"]]
    assert run.steps.prefill_tokens.tolist() == [8, 0, 32, 0, 0, 0]
    assert run.steps.decode_tokens.tolist() == [0, 1, 0, 2, 2, 2]
    steps = run.steps
    assert busy_ns(run) == steps.t1.max() - START < (steps.t1 - steps.t0).sum()
    found = gaps(tmp_path / "a.stall")
    # r1's second token waited for r2's prefill, which was begun before its result was looked at. The forward pass that
    # made it lies before its first token.
    assert found["r1", 19.0] == {"prefill": 20, "sched": 1, "sample": 1, "output": 1, "other:dispatch": 2}
    # the third for a decode of 5; r2's first token came in the midst, of a step that only prefilled
    assert found["r1", 44.0] == {"fwd": 10, "sched": 2, "sample": 2, "output": 2, "other:dispatch": 4}


def test_a_pause_is_charged_where_it_delayed_the_token(tmp_path: Path, clock: Clock) -> None:
    """No device: a pause in the next forward pass delays the result that waits."""
    served = Hooked(tmp_path / "a.stall", clock, overlap=True)
    one = served.req("r1")
    recorder = served.process.recorder
    assert recorder is not None
    for _ in range(4):
        served.scheduler.overlap(
            Batch([one], [8]) if not one.output_ids and not served.scheduler.results else Batch([one])
        )
    recorder.pause(START + 20 * MS, START + 22 * MS, 2)
    served.scheduler.overlap(None)
    served.close()
    found = gaps(tmp_path / "a.stall")
    (held,) = [parts for parts in found.values() if "gc" in parts]
    assert held["gc"] == 2
    assert sum(held.values()) == 10


def planted(folder: Path, clock: Clock, stream: Stream) -> None:
    """Three decodes, in ms, on a device that takes 10 + 1 for each: see the comments."""
    served = Hooked(folder, clock, overlap=True, stream=stream)
    r1, r2 = served.req("r1"), served.req("r2")
    recorder = served.process.recorder
    assert recorder is not None
    overlap = served.scheduler.overlap
    running = Batch([r1, r2])

    def retract() -> None:
        clock.go(0.5)
        r2.reset_for_retract()

    overlap(Batch([r1, r2], [8, 8]), 10)  # 0 to 5; device: 2 to 12 to 13
    overlap(running, 10)  # 5 to 10; device: 13 to 23 to 24; the first tokens at 13
    assert clock.now == START + 14 * MS
    running.reqs = [r1]
    overlap(running, 10, meanwhile=retract)  # 14 to 19.5, r2 is out at 14.5; device: 24 to 34 to 35; tokens at 24
    assert clock.now == START + 25 * MS
    recorder.pause(START + 16 * MS, START + 18 * MS, 2)  # behind a busy device
    r2.is_retracted = False
    overlap(Batch([r2], [9]), 10)  # 25 to 30; device: 35 to 45 to 46; tokens at 35
    clock.to(50)
    running.reqs = [r1, r2]
    overlap(running, 10)  # 50 to 55; device: 52 to 62 to 63; r2's token of 46 is told at 55
    recorder.pause(START + 47 * MS, START + 49 * MS, 2)  # the device had nothing to do
    overlap(None)
    served.close()


def test_hidden_work_is_not_charged(tmp_path: Path, clock: Clock, stream: Stream) -> None:
    planted(tmp_path / "a.stall", clock, stream)
    found = gaps(tmp_path / "a.stall")
    # 13 to 24: the device to 24, though the host scheduled, launched and collected meanwhile
    assert found["r1", 13.0] == {"fwd": 10, "sample": 1}
    p = sb.partition(sb.open(tmp_path / "a.stall"))
    assert p.run.notes == {}
    assert p.hidden.sum() > 0


def test_tokens_in_flight_of_a_retracted_request_are_not_counted(
    tmp_path: Path, clock: Clock, stream: Stream
) -> None:  # fmt: skip
    """SGLang throws them away, and makes them again."""
    planted(tmp_path / "a.stall", clock, stream)
    found = gaps(tmp_path / "a.stall")
    assert found["r2", 13.0]["preempt"] == 26 - 14.5
    assert sum(found["r2", 13.0].values()) == 55 - 13
    run = sb.open(tmp_path / "a.stall")
    assert run.evictions.lost_tokens.tolist() == [8]
    assert run.evictions.recompute.tolist() == [1]


def test_what_no_device_hides_is_charged(tmp_path: Path, clock: Clock, stream: Stream) -> None:
    planted(tmp_path / "a.stall", clock, stream)
    found = gaps(tmp_path / "a.stall")
    # 35 to 63: a prefill on the device to 46; then nothing ran, and the host collected from 47 to 49. It launched the
    # next decode at 52, and told of r2's token at 55: until then it was the host that everybody waited for.
    parts = found["r1", 35.0]
    assert (parts["prefill"], parts["gc"], parts["fwd"]) == (10, 2, 62 - 55)
    assert sum(parts.values()) == 63 - 35


def test_a_result_that_is_not_to_wait(tmp_path: Path, clock: Clock) -> None:
    """Of two prefills in a row the first one's result is processed before the second runs."""
    served = Hooked(tmp_path / "a.stall", clock, overlap=True)
    overlap = served.scheduler.overlap
    r1, r2 = served.req("r1"), served.req("r2")
    overlap(Batch([r1], [8]))
    overlap(Batch([r2], [8]), at_once=True)
    overlap(Batch([r1, r2]))
    overlap(None)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert run.notes == {}
    assert ((run.steps.emit - START) / MS).tolist() == [10, 28, 29]
    p = sb.partition(run)
    assert p.reconcile.max_error_ns == 0
    assert (
        sum(part for parts in gaps(tmp_path / "a.stall").values() for name, part in parts.items() if name == "residual")
        == 0
    )


def test_a_step_that_ran_for_nobody_is_a_step(tmp_path: Path, clock: Clock) -> None:
    """All of its requests were retracted while it was under way; another one's result waited for it."""
    served = Hooked(tmp_path / "a.stall", clock, overlap=True)
    overlap = served.scheduler.overlap
    r1, r2 = served.req("r1"), served.req("r2")
    overlap(Batch([r1, r2], [8, 8]))
    overlap(Batch([r1]))
    overlap(Batch([r2]), 20)  # r1's result waits
    overlap(Batch([r1]), meanwhile=r2.reset_for_retract)
    overlap(None)
    served.close()
    run = sb.open(tmp_path / "a.stall")
    assert len(run.steps.id) == 4
    found = gaps(tmp_path / "a.stall")
    assert all("residual" not in parts for parts in found.values())
    assert {name for name, _ in found} == {"r1"}
