"""The worst gaps one by one, the time that long ones hold up, and which streams stopped: by hand."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stallbook as sb
from cases.build import MS, arrive, dec, deliver, evict, gc, scaled, step
from randomlog import KINDS, random_log
from stallbook.beyond import after_emission, delivered, exactness, tally_waits
from stallbook.causes import CLEAN
from stallbook.counters import origin_ns, series
from stallbook.partition import Partition
from stallbook.stalls import Stalls, find_stalls
from stallbook.waits import boundary_gaps, first_tokens
from test_partition import opened

Event = dict[str, Any]
HEAD: Event = {
    "stallbook": 1, "engine": "planted", "records": ["segments", "gc", "evictions", "graph", "members"],
    "baseline": {"fixed_ns": 10 * MS, "row_ns": 0, "kv_token_ns": 0},
}  # fmt: skip


def partitioned(folder: Path, *rows: list[Event], rules: Any = "full") -> Partition:
    events = [HEAD, *(scaled(event, MS) for row in rows for event in row)]
    return sb.partition(opened(events, folder), rules)


def steady(first: int, last: int, to: str, start: float) -> list[Event]:
    """Steps `first` to `last` - 1 of 10 ms each, the first from `start` on; each emits at its end."""
    out = []
    for i in range(first, last):
        t = start + 10 * (i - first)
        out += step(i, t, t + 10, dec(t, t + 10), n=len(to), emit=t + 10, to=to)
    return out


def stopped_by_gc(folder: Path, to: str = "abc") -> Partition:
    """Steps 0 to 9 end at 10 ... 100; step 10 has a pause of 300 and ends at 410; 11 to 20 end at 420 ... 510."""
    middle = step(10, 100, 410, dec(100, 410), n=len(to), emit=410, to=to)
    return partitioned(folder, steady(0, 10, to, 0), middle, gc(105, 405), steady(11, 21, to, 410))


def only(stalls: Stalls) -> list[tuple[Any, ...]]:
    """Stalls that are longer than a step."""
    return [
        (s.request, s.start_ns / MS, s.length_ns / MS, s.streams, s.primary, s.live, s.stopped, s.scope)
        for s in stalls.worst
        if s.length_ns > 10 * MS
    ]


def test_all_streams_stop_for_a_collection(tmp_path: Path) -> None:
    stalls = find_stalls(stopped_by_gc(tmp_path))
    assert only(stalls) == [("a", 100, 310, 3, "gc", 3, 3, "all")]
    assert stalls.worst[0].parts_ns == {"gc": 300 * MS, "fwd": 10 * MS}
    assert (stalls.threshold_ns, stalls.count, stalls.stalled_ns) == (100 * MS, 3, 3 * 210 * MS)
    assert stalls.share == pytest.approx(3 * 210 / (3 * 500))
    assert (stalls.max_ns, stalls.median_ns) == (310 * MS, 10 * MS)


def test_a_stream_alone_says_nothing_of_others(tmp_path: Path) -> None:
    assert only(find_stalls(stopped_by_gc(tmp_path, "a"))) == [("a", 100, 310, 1, "gc", 1, 1, "alone")]


def test_an_eviction_stops_its_own_stream(tmp_path: Path) -> None:
    p = partitioned(
        tmp_path, steady(0, 10, "abc", 0), evict("b", 102, 395), steady(10, 40, "ac", 100), steady(40, 45, "abc", 400)
    )
    assert only(find_stalls(p)) == [("b", 100, 310, 1, "preempt", 3, 1, "one")]
    assert find_stalls(p).worst[0].parts_ns == {"preempt": 293 * MS, "fwd": 17 * MS}


def test_two_evicted_at_once_are_one_stall_that_stops_some(tmp_path: Path) -> None:
    p = partitioned(
        tmp_path, steady(0, 10, "abcd", 0), evict("b", 102, 395), evict("c", 103, 395), steady(10, 40, "ad", 100),
        steady(40, 45, "abcd", 400),
    )  # fmt: skip
    assert only(find_stalls(p)) == [("b", 100, 310, 2, "preempt", 4, 2, "some")]


def test_streams_that_have_not_begun_or_are_over_are_not_live(tmp_path: Path) -> None:
    middle = step(10, 100, 410, dec(100, 410), n=2, emit=410, to="ae")  # c ended at 100, e begins at 410
    p = partitioned(tmp_path, steady(0, 10, "ac", 0), middle, gc(105, 405), steady(11, 21, "ae", 410))
    assert only(find_stalls(p)) == [("a", 100, 310, 1, "gc", 1, 1, "alone")]


def test_an_even_run_has_no_stalls_and_an_empty_one_neither(tmp_path: Path) -> None:
    even = find_stalls(partitioned(tmp_path, steady(0, 30, "ab", 0)))
    assert (even.count, even.stalled_ns, even.share, len(even.worst)) == (0, 0, 0, 20)
    empty = find_stalls(partitioned(tmp_path))
    assert (empty.count, empty.max_ns, empty.worst) == (0, 0, ())


def test_the_threshold_follows_a_slow_run(tmp_path: Path) -> None:
    rows = [step(i, 50 * i, 50 * i + 50, dec(50 * i, 50 * i + 50), emit=50 * i + 50) for i in range(9)]
    late = step(9, 450, 950, dec(450, 950), emit=950)
    stalls = find_stalls(partitioned(tmp_path, *rows, late))
    assert (stalls.threshold_ns, stalls.max_ns, stalls.count) == (500 * MS, 500 * MS, 0)  # over, not at


@pytest.mark.parametrize("kind", KINDS)
def test_random_logs_against_every_gap_written_out(kind: str, tmp_path: Path) -> None:
    for seed in range(8):
        p = sb.partition(opened(random_log(random.Random(f"{kind} {seed}"), kind), tmp_path))
        g, names, parts = p.gaps, p.run.requests.names, p.parts()
        spans = list(zip(g.t0.tolist(), g.t1.tolist(), strict=True))
        primary = [p.causes[i] if i >= 0 else CLEAN for i in p.row_primary[p.row_of_gap]]
        groups = Counter(key for key in zip(spans, primary, strict=True) if key[0][1] > key[0][0])
        stalls, origin = find_stalls(p), origin_ns(p.run)
        lengths = sorted((b - a for (a, b), _ in groups), reverse=True)
        assert [s.length_ns for s in stalls.worst] == lengths[:20]
        for s in stalls.worst:
            t0, t1 = s.start_ns + origin, s.start_ns + origin + s.length_ns
            assert groups[((t0, t1), s.primary)] == s.streams
            mine = [i for i, span in enumerate(spans) if span == (t0, t1) and names[g.request[i]] == s.request]
            assert any(
                {c: v for c, v in zip(p.causes, parts[i].tolist(), strict=True) if v} == s.parts_ns for i in mine
            )
            live = [(a, b) for a, b in spans if a <= (t0 + t1) // 2 < b]
            assert s.live == len(live)
            assert s.stopped == sum(2 * (min(b, t1) - max(a, t0)) >= t1 - t0 for a, b in live)


def test_every_row_is_counted_when_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p = stopped_by_gc(tmp_path)
    every = find_stalls(p)
    monkeypatch.setattr("stallbook.stalls.CANDIDATES", 1)
    assert find_stalls(p).worst == every.worst[:1]


def test_stalls_that_clients_saw(tmp_path: Path) -> None:
    """The engine never stops; what it emits from 100 to 240 reaches both clients after 250, all but at once."""
    stamps = [float(t) for t in range(10, 310, 10)]
    late = [t + 1 if t < 100 or t >= 250 else 250.9 + t / 10_000 for t in stamps]
    later = [t + 0.5 for t in late]
    p = partitioned(tmp_path, steady(0, 30, "ab", 0), deliver("a", "client", *late), deliver("b", "client", *later))
    assert delivered(p) == ("client",)
    waits = boundary_gaps(p, "client")
    stalls = find_stalls(p, waits, "client")
    assert [(s.streams, s.primary, s.scope) for s in stalls.worst[:1]] == [(2, "frontend", "all")]
    assert stalls.count == 2
    after = after_emission(waits)
    assert (after.tail_gaps, after.longest_ns) == (2, round((250.91 + 0.5 - 100) * MS))
    assert exactness(waits) == (0, 0)
    assert tally_waits(waits).mix().gaps == 58


def test_the_posts_rules_know_no_deliveries(tmp_path: Path) -> None:
    rows = (steady(0, 3, "a", 0), deliver("a", "client", 11, 21, 31))
    assert delivered(partitioned(tmp_path, *rows)) == ("client",)
    assert delivered(partitioned(tmp_path, *rows, rules="post")) == ()


def test_first_tokens_are_tallied(tmp_path: Path) -> None:
    p = partitioned(tmp_path, arrive("a", 0, 8), arrive("b", 0), steady(0, 3, "ab", 10))
    waits = first_tokens(p)
    mix = tally_waits(waits).mix()
    assert (mix.gaps, mix.total_ns, waits.never_admitted) == (2, 40 * MS, 1)
    assert mix.time_ns == {"fwd": 20 * MS, "residual": 12 * MS, "queue": 8 * MS}
    assert exactness(waits) == (0, 0)


def test_nothing_beyond_the_engine_adds_up_to_nothing(tmp_path: Path) -> None:
    waits = boundary_gaps(partitioned(tmp_path), "client")
    assert (exactness(waits), tally_waits(waits).mix().gaps, after_emission(waits).gaps) == ((0, 0), 0, 0)


def test_three_readings_of_several_tokens() -> None:
    told = series(np.array([12, 30, 8]) * MS, np.array([1, 3, 4]))
    assert told.several == 2
    assert np.repeat(told.zero_filled.values, told.zero_filled.weights).tolist() == [
        0, 0, 0, 0, 0, 8 * MS, 12 * MS, 30 * MS,
    ]  # fmt: skip
    assert np.repeat(told.divided.values, told.divided.weights).tolist() == [2 * MS] * 4 + [10 * MS] * 3 + [12 * MS]
