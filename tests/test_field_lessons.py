"""What public stall reports got wrong, planted: the cause under `full`, and what the post's seven causes make of it.

Each lesson is a short run. Ten usual steps give the baseline something to fit: a captured decode takes 4 ms and half
a millisecond a row, after half a millisecond of scheduling. Then comes one incident, and one gap of request `a` that
holds it. Times are in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stallbook as sb
from cases.build import MS, Event, colon, dec, deliver, dev, evict, gc, hold, scaled, seg, step
from slow import partition as slow_partition
from stallbook import waits
from stallbook.counters import series
from stallbook.errors import StallbookError
from stallbook.prompts import KINDS as WHOSE
from stallbook.prompts import prompts
from stallbook.report import report
from test_partition import close, fast_gaps, opened

EIGHT = "abcdefgh"
START = 75.0
"""When the usual steps are over; their ids are 0 to 10."""
FIT = {"fixed_ns": 4 * MS, "row_ns": MS / 2, "kv_token_ns": 0}
HEADER = {
    "stallbook": 1,
    "engine": "lesson",
    "records": ["segments", "gc", "evictions", "graph", "members", "os", "device", "holds"],
}


def decode_ms(rows: int) -> float:
    return 4 + rows / 2


def normal(number: int, t: float, *, to: str = EIGHT, padded: int | None = None) -> list[Event]:
    """A step as it should be."""
    size = padded or len(to)
    return odd(number, t, decode_ms(size), to=to, padded=size)


def odd(
    number: int,
    t: float,
    ms: float,
    *inside: Event,
    to: str = EIGHT,
    tokens: int = 1,
    before: float = 0.5,
    os: float | None = None,
    **more: Any,
) -> list[Event]:
    """A step whose scheduling takes `before` and whose decode takes `ms`, of which `os`, with other windows in it."""
    d0, d1 = t + before, t + before + ms
    rows = len(to) * tokens
    if more.get("graph", "captured") == "captured":
        more.setdefault("padded", rows)
    windows = (seg("sched", t, d0), dec(d0, d1, os), *inside)
    return step(number, t, d1, *windows, n=rows, emit=d1, to=dict.fromkeys(to, tokens), members=to, **more)


def usual() -> list[Event]:
    """First tokens of four at 0; five steps of four rows, 6 ms each; five of eight, 8 ms each."""
    rows, t = step(0, 0, 0, n=0, graph=None, emit=0, to="abcd"), 0.0
    for number in range(1, 11):
        to = EIGHT[:4] if number <= 5 else EIGHT
        rows += normal(number, t, to=to)
        t += 0.5 + decode_ms(len(to))
    assert t == START
    return rows


def without_a(steps: int, *, prefill: float = 0.0) -> list[Event]:
    """Steps that decode the other seven, padded to eight; each may prefill something first."""
    rows, t = [], START
    for number in range(11, 11 + steps):
        chunk = [seg("prefill", t, t + prefill, of="z")] if prefill else []
        begin, end = t + prefill, t + prefill + 8.5
        windows = (*chunk, seg("sched", begin, begin + 0.5), dec(begin + 0.5, end))
        rows += step(number, t, end, *windows, n=7, padded=8, emit=end, to=EIGHT[1:], members=EIGHT[1:])
        t = end
    return rows


@dataclass(frozen=True)
class Lesson:
    """An incident, and the answers for the gap of `a` that begins at `START`.

    cause, parts: under `full`, in ms. names, wrong: the same under `post`.
    """

    name: str
    why: str
    incident: list[Event]
    cause: str
    parts: dict[str, float]
    names: str
    wrong: dict[str, float]

    @property
    def events(self) -> list[Event]:
        return [HEADER, *(scaled(event, MS) for event in [*usual(), *self.incident])]


WRONGLY_LABELLED = (
    Lesson(
        "runtime-compile-in-an-eager-step",
        "17 s of compilation at the first batch of a new shape; the post says that the batch fitted no graph.",
        odd(11, START, 17_030, seg("compile", 80, 17_080), graph="eager"),
        "other:compile",
        {"sched": 0.5, "other:compile": 17_000, "fwd": 8, "graph": 22},
        "graph",
        {"residual": 0.5, "fwd": 8, "graph": 17_022},
    ),
    Lesson(
        "runtime-compile-in-a-captured-step",
        "The same on a captured path: to the post a healthy forward pass of 17 s.",
        odd(11, START, 17_008, seg("compile", 80, 17_080)),
        "other:compile",
        {"sched": 0.5, "other:compile": 17_000, "fwd": 8},
        "clean",
        {"residual": 0.5, "fwd": 17_008},
    ),
    Lesson(
        "runtime-compile-in-a-prefill",
        "The same in a prompt's chunk: to the post a long prompt.",
        [
            *step(11, 75, 17_095, seg("prefill", 75, 17_095, of="z"), seg("compile", 80, 17_080), n=0, prefill=64),
            *normal(12, 17_095),
        ],
        "other:compile",
        {"sched": 0.5, "other:compile": 17_000, "prefill": 20, "fwd": 8},
        "prefill",
        {"residual": 0.5, "prefill": 17_020, "fwd": 8},
    ),
    Lesson(
        "cpu-quota-in-a-segment",
        "A quota turns 8 ms into 76; the device is idle for most of it, and the post sees a forward pass.",
        odd(11, START, 76, os=68),
        "os",
        {"sched": 0.5, "os": 68, "fwd": 8},
        "clean",
        {"residual": 0.5, "fwd": 76},
    ),
    Lesson(
        "cpu-quota-in-a-step-total",
        "Known for the whole step of 76.5 only: spread over its segments by length.",
        odd(11, START, 76, delay=68),
        "os",
        {"sched": 0.055556, "os": 67.999999, "fwd": 8.444445},
        "clean",
        {"residual": 0.5, "fwd": 76},
    ),
    Lesson(
        "cpu-quota-in-an-eager-step",
        "The same above the captured sizes: the post would have more sizes captured, which helps nothing.",
        odd(11, START, 80, os=68, graph="eager"),
        "os",
        {"sched": 0.5, "os": 68, "fwd": 8, "graph": 4},
        "graph",
        {"residual": 0.5, "fwd": 8, "graph": 72},
    ),
    Lesson(
        "slow-on-its-captured-path",
        "A captured decode of nearly ten times its cost, with nothing to say why: `slow`, not a healthy forward pass.",
        odd(11, START, 76),
        "slow",
        {"sched": 0.5, "slow": 68, "fwd": 8},
        "clean",
        {"residual": 0.5, "fwd": 76},
    ),
    Lesson(
        "host-work-in-the-step-sampler",
        "A sampler on the host holds the step up for 45 ms; under an eager step the post calls it a graph miss.",
        odd(11, START, 55, seg("sample", 83.5, 128.5), graph="eager"),
        "sample",
        {"sched": 0.5, "sample": 45, "fwd": 8, "graph": 2},
        "graph",
        {"residual": 0.5, "fwd": 8, "graph": 47},
    ),
    Lesson(
        "host-work-in-the-step-scheduler",
        "The scheduler walks a long queue for 300 ms: the post has no word for it.",
        odd(11, START, 8, before=300),
        "sched",
        {"sched": 300, "fwd": 8},
        "clean",
        {"residual": 300, "fwd": 8},
    ),
    Lesson(
        "host-work-in-the-step-output",
        "Detokenizing and checking stop words after the forward pass hold the next step up.",
        [*step(11, 75, 195, seg("output", 75, 195), n=0), *normal(12, 195)],
        "output",
        {"output": 120, "sched": 0.5, "fwd": 8},
        "clean",
        {"residual": 120.5, "fwd": 8},
    ),
    Lesson(
        "expert-rebalance",
        "Experts move between ranks inside a captured step, 915 ms: to the post a healthy forward pass.",
        odd(11, START, 923, seg("rebalance", 80, 995)),
        "other:rebalance",
        {"sched": 0.5, "other:rebalance": 915, "fwd": 8},
        "clean",
        {"residual": 0.5, "fwd": 923},
    ),
    Lesson(
        "mixed-batch-eager",
        "512 prompt tokens in everybody's forward pass, above the captured sizes: the post's lever is the wrong one.",
        odd(11, START, 128, graph="eager", prefill=512),
        "prefill",
        {"sched": 0.5, "fwd": 8, "prefill": 120},
        "graph",
        {"residual": 0.5, "fwd": 8, "graph": 120},
    ),
    Lesson(
        "mixed-batch-captured",
        "The same on a captured path: to the post a healthy forward pass.",
        odd(11, START, 128, prefill=512),
        "prefill",
        {"sched": 0.5, "fwd": 8, "prefill": 120},
        "clean",
        {"residual": 0.5, "fwd": 128},
    ),
    Lesson(
        "unscheduled",
        "Running, cache in place, nothing waits, no preemption: forty steps decode the other seven.",
        [*without_a(40), *normal(51, 415)],
        "unscheduled",
        {"unscheduled": 340, "sched": 0.5, "fwd": 8},
        "clean",
        {"residual": 20.5, "fwd": 328},
    ),
    Lesson(
        "unscheduled-behind-prompts",
        "The same while prompts stream in: the post blames them, but the others went on behind the same prompts.",
        [*without_a(8, prefill=41.5), *normal(19, 475)],
        "unscheduled",
        {"unscheduled": 400, "sched": 0.5, "fwd": 8},
        "prefill",
        {"prefill": 332, "residual": 4.5, "fwd": 72},
    ),
    Lesson(
        "kv-wait-among-prompts",
        "The cache of `a` loads from afar for 400 ms while prompts are served: the post blames the prompts.",
        [*hold("a", "kv", 75, 475), *without_a(8, prefill=41.5), *normal(19, 475)],
        "other:kv",
        {"other:kv": 400, "sched": 0.5, "fwd": 8},
        "prefill",
        {"prefill": 332, "residual": 4.5, "fwd": 72},
    ),
    Lesson(
        "kv-wait-of-an-idle-engine",
        "The same with nobody else there: the post explains nothing. It is no preemption: nothing was evicted.",
        [*hold("a", "kv", 75, 475), *normal(11, 475)],
        "other:kv",
        {"other:kv": 400, "sched": 0.5, "fwd": 8},
        "clean",
        {"residual": 400.5, "fwd": 8},
    ),
    Lesson(
        "several-tokens-behind-a-drafter",
        "The drafter stalls for 60 ms before a pass that verifies 32 rows and brings four tokens each.",
        [*step(11, 75, 135, seg("draft", 75, 135), n=0), *odd(12, 135, 20, tokens=4)],
        "other:draft",
        {"other:draft": 60, "sched": 0.5, "fwd": 20},
        "clean",
        {"residual": 60.5, "fwd": 20},
    ),
    Lesson(
        "several-tokens-in-a-mixed-batch",
        "A verifying pass with a prompt's chunk in it: B is that of the 32 verified rows, 20 ms, not of 8 requests.",
        odd(11, START, 140, graph="eager", prefill=512, tokens=4),
        "prefill",
        {"sched": 0.5, "fwd": 20, "prefill": 120},
        "graph",
        {"residual": 0.5, "fwd": 20, "graph": 120},
    ),
)
OTHERS = (
    Lesson(
        "adapter-load-in-the-step",
        "An adapter is loaded on the engine's loop.",
        [*step(11, 75, 255, seg("lora", 75, 255), n=0), *normal(12, 255)],
        "other:lora",
        {"other:lora": 180, "sched": 0.5, "fwd": 8},
        "clean",
        {"residual": 180.5, "fwd": 8},
    ),
    Lesson(
        "adapter-load-of-one-request",
        "The adapter of `a` was thrown out and is fetched again; the others decode on.",
        [*hold("a", "lora", 75, 160), *without_a(10), *normal(21, 160)],
        "other:lora",
        {"other:lora": 85, "sched": 0.5, "fwd": 8},
        "clean",
        {"residual": 5.5, "fwd": 88},
    ),
    Lesson(
        "bystander-of-preemption-churn",
        "`b` is evicted three times and computed again, 90 ms each: `a` was never evicted and waits all the same.",
        [
            *(e for t in (75, 175, 275) for e in evict("b", t, t + 10)),
            *(
                e
                for i, t in enumerate((75, 175, 275))
                for e in step(11 + i, t, t + 100, seg("prefill", t + 10, t + 100, of="b"), n=0, prefill=900)
            ),
            *normal(14, 375),
        ],
        "prefill",
        {"prefill": 270, "sched": 0.5, "fwd": 8, "residual": 30},
        "prefill",
        {"prefill": 270, "residual": 30.5, "fwd": 8},
    ),
    Lesson(
        "gc-of-two-ranks",
        "Two ranks collect inside one step, 700 and 630 ms: the token waited for the union of 1,184, not for 1,330.",
        [*odd(11, START, 1_192), *gc(76, 776, "worker:0"), *gc(630, 1_260, "worker:1")],
        "gc",
        {"gc": 1_184, "sched": 0.5, "fwd": 8},
        "gc",
        {"gc": 1_184, "residual": 0.5, "fwd": 8},
    ),
    Lesson(
        "pause-behind-a-busy-device",
        "The device decodes 32 rows for 20 ms while the host collects for 18: it cost nothing.",
        [
            *step(11, 75, 96, seg("sched", 75, 75.5), dev(75.5, 95.5), n=32, padded=32, emit=95.5, to=EIGHT),
            *gc(76, 94),
        ],
        "clean",
        {"sched": 0.5, "fwd": 20},
        "gc",
        {"residual": 2.5, "gc": 18},
    ),
)
KINDS = (
    "runtime-compile",
    "cpu-quota",
    "host-work-in-the-step",
    "expert-rebalance",
    "mixed-batch",
    "unscheduled",
    "kv-wait",
    "several-tokens",
)
"""What the reports' readers would be told wrongly."""

Answer = tuple[str, dict[str, int]]


def ns(parts: dict[str, float]) -> dict[str, int]:
    return {colon(cause): round(ms * MS) for cause, ms in parts.items()}


def answers(lesson: Lesson, folder: Path, rules: Any) -> list[Answer]:
    """The gap of `a` by the partition and by the slow one, which is given the line that the other has to find."""
    run = opened(lesson.events, folder)
    t0 = round(START * MS)
    found = [
        (primary, parts)
        for (request, _, start, _), primary, parts, _ in fast_gaps(run, sb.partition(run, rules=rules))
        if (request, start) == ("a", t0)
    ]
    slow = slow_partition(lesson.events, rules, FIT if rules == "full" else None)
    found += [(g.primary, g.parts) for g in slow if (g.request, g.t0) == ("a", t0)]
    assert len(found) == 2
    return found


@pytest.mark.parametrize("lesson", [*WRONGLY_LABELLED, *OTHERS], ids=lambda lesson: lesson.name)
def test_full_names_the_cause(lesson: Lesson, tmp_path: Path) -> None:
    for primary, parts in answers(lesson, tmp_path, "full"):
        assert primary == lesson.cause, lesson.why
        assert close(parts, ns(lesson.parts), 2), (lesson.why, parts)


@pytest.mark.parametrize("lesson", WRONGLY_LABELLED, ids=lambda lesson: lesson.name)
def test_the_post_names_another(lesson: Lesson, tmp_path: Path) -> None:
    for primary, parts in answers(lesson, tmp_path, "post"):
        assert primary == lesson.names != lesson.cause, lesson.why
        assert close(parts, ns(lesson.wrong), 2), (lesson.why, parts)
        assert parts.get(lesson.cause, 0) == 0


@pytest.mark.parametrize("lesson", OTHERS, ids=lambda lesson: lesson.name)
def test_what_the_post_makes_of_the_others(lesson: Lesson, tmp_path: Path) -> None:
    for primary, parts in answers(lesson, tmp_path, "post"):
        assert primary == lesson.names, lesson.why
        assert close(parts, ns(lesson.wrong), 2), (lesson.why, parts)


def test_each_kind_that_is_wrongly_labelled_has_a_lesson() -> None:
    for kind in KINDS:
        assert any(lesson.name.startswith(kind) for lesson in WRONGLY_LABELLED), kind


@pytest.mark.parametrize("lesson", [*WRONGLY_LABELLED, *OTHERS], ids=lambda lesson: lesson.name)
def test_the_answers_add_up(lesson: Lesson) -> None:
    assert sum(ns(lesson.parts).values()) == sum(ns(lesson.wrong).values())


def lesson_of(name: str) -> Lesson:
    return next(lesson for lesson in [*WRONGLY_LABELLED, *OTHERS] if lesson.name == name)


def test_the_bystander_waited_for_what_had_been_computed_before(tmp_path: Path) -> None:
    events = lesson_of("bystander-of-preemption-churn").events
    events = [e | {"mode": "recompute"} if e.get("e") == "evict" else e for e in events]
    p = sb.partition(opened(events, tmp_path))
    last = {p.run.requests.names[p.gaps.request[i]]: p.row_of_gap[i] for i in range(len(p.gaps.t0))}
    told = {r: dict(zip(WHOSE, prompts(p)[row].tolist(), strict=True)) for r, row in last.items()}
    assert told["a"] == dict.fromkeys(WHOSE, 0) | {"another's, again": 270 * MS}
    assert told["b"] == dict.fromkeys(WHOSE, 0) | {"its own, again": 270 * MS}


def test_several_tokens_divided_before_looking_hide_the_stall(tmp_path: Path) -> None:
    """A gap of 80.5 ms is 20.1 a token: below what a usual step of 32 rows takes, and in no tail."""
    run = opened(lesson_of("several-tokens-behind-a-drafter").events, tmp_path)
    p = sb.partition(run)
    told = series(p.gaps.t1 - p.gaps.t0, p.gaps.tokens)
    assert (p.gaps.t1 - p.gaps.t0).max() == 80.5 * MS
    assert told.zero_filled.max == 80.5 * MS
    assert told.divided.max == pytest.approx(80.5 * MS / 4, abs=1)


def test_several_tokens_coalesced_by_the_frontend(tmp_path: Path) -> None:
    """The engine emits every 8.5 ms; the frontend passes four tokens on at once. The post knows no such boundary."""
    stamps = [START + 8.5 * k for k in range(1, 9)]
    events = [*usual(), *(e for k, t in enumerate(stamps) for e in normal(11 + k, t - 8.5))]
    before = [6.5 * k for k in range(6)] + [32.5 + 8.5 * k for k in range(1, 6)]
    events += [e for t in before for e in deliver("a", "client", t + 1)]
    events += [e for k in (3, 7) for e in deliver("a", "client", stamps[k] + 1, tokens=4)]
    run = opened([HEADER, *(scaled(e, MS) for e in events)], tmp_path)
    found = waits.boundary_gaps(sb.partition(run), "client")
    last = dict(zip(found.causes, found.parts[-1].tolist(), strict=True))
    assert (found.t1[-1] - found.t0[-1], found.tokens[-1]) == (34 * MS, 4)
    assert found.causes[found.primary[-1]] == "frontend"
    # Its first token was emitted 7.5 ms after the last delivery; the other 26.5 ms passed behind the engine.
    assert {cause: v for cause, v in last.items() if v} == {"fwd": 7.5 * MS, "frontend": 26.5 * MS}
    assert all(parts.get("fwd") for (_, _, t0, _), _, parts, _ in fast_gaps(run, sb.partition(run)) if t0 >= START * MS)
    with pytest.raises(StallbookError, match="engine's gaps only"):
        report(run, rules="post", boundary="client")


def test_a_delay_after_emission_is_no_gap_of_the_engine(tmp_path: Path) -> None:
    """A token waits 180 ms behind the engine while a prompt runs there: the step that overlaps is not to blame."""
    events = [*usual(), *normal(11, START), *step(12, 83.5, 240, seg("prefill", 83.5, 240, of="z"), n=0, prefill=900)]
    events += [*normal(13, 240)]
    for t, client in ((75, 76), (83.5, 263.5), (248.5, 264.5)):
        events += [*deliver("a", "frontend", t + 0.5), *deliver("a", "client", client)]
    # The tokens before were delivered in one piece at 75: the first eleven.
    events = [e | {"tokens": 11} if e.get("e") == "deliver" and e["t"] in (75.5, 76) else e for e in events]
    run = opened([HEADER, *(scaled(e, MS) for e in events)], tmp_path)
    p = sb.partition(run)
    found = waits.boundary_gaps(p, "client")
    parts = {c: v for c, v in zip(found.causes, found.parts[0].tolist(), strict=True) if v}
    assert parts == {"fwd": 7.5 * MS, "frontend": 0.5 * MS, "network": 179.5 * MS}
    assert found.causes[found.primary[0]] == "network"
    engine = {t0: primary for (r, _, t0, _), primary, _, _ in fast_gaps(run, p) if r == "a"}
    assert engine[round(START * MS)] == "clean"
    text = str(report(run, boundary="client"))
    assert "% of the tail's time is network" in text
    assert np.array_equal(found.parts.sum(axis=1), found.t1 - found.t0)
