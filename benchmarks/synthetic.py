"""A synthetic recording of any length, in the shape of the demonstrator's: for benchmarks, not for conclusions."""

from __future__ import annotations

import numpy as np

from stallbook.run import (
    CAPTURED,
    EAGER,
    UNKNOWN,
    Deliveries,
    Emissions,
    Evictions,
    Holds,
    Ints,
    Members,
    Pauses,
    Probes,
    Requests,
    Run,
    Segments,
    Steps,
)

BATCH = 32
LIFE = 300
NAMES = ("tok", "swap", "prefill", "decode", "engine")


def synthetic_run(gaps: int, seed: int = 0) -> Run:
    """About `gaps` gaps: a batch of 32, lives of about 300 tokens, 2% of requests evicted once, 4 segments a step."""
    rng = np.random.default_rng(seed)
    n = max(gaps // (BATCH - 1), 2)
    request, step, evictions = _emissions(rng, n)
    steps, segments, decode_end = _steps(rng, n)
    evicted, a, b = evictions.T
    t0 = segments.t0[a * 4 + 1]
    t1 = segments.t1[b * 4 + 1]
    count = int(request[-1]) + 1
    empty = np.zeros(0, np.int64)
    unknown = np.full(count, UNKNOWN)
    starts = np.sort(rng.choice(n, max(n // 500, 1), replace=False))
    pause0 = segments.t0[starts * 4 + 3] + 1_000
    pauses = Pauses(pause0, np.minimum(pause0 + 300_000, decode_end[starts] - 1), *_pair(len(starts)))
    return Run(
        Requests(tuple(map(str, range(count))), unknown, unknown, unknown, np.full(count, 200), np.full(count, LIFE)),
        steps,
        segments,
        pauses,
        Emissions(request, step, np.ones(len(step), np.int64)),
        Evictions(evicted, t0, t1, np.zeros(len(t0), np.int64), np.zeros(len(t0), np.int64)),
        Holds(empty, empty, empty, empty),
        Deliveries(empty, empty, empty, empty),
        Members(np.zeros(n, np.int64), np.zeros(n + 1, np.int64), empty),
        Probes(empty, empty),
        NAMES,
        engine="synthetic",
        records=frozenset({"segments", "gc", "evictions", "graph", "kv_tokens"}),
    )


def _pair(n: int) -> tuple[Ints, Ints]:
    return np.zeros(n, np.int64), np.full(n, NAMES.index("engine"))


def _emissions(rng: np.random.Generator, n: int) -> tuple[Ints, Ints, Ints]:
    """Who emits in which step, slot by slot; a request in 50 misses a stretch in its middle."""
    requests, steps, evictions, first = [], [], [], 0
    for _ in range(BATCH):
        lives = rng.integers(LIFE // 2, LIFE * 3 // 2, n // (LIFE // 2) + 2)
        life = np.repeat(np.arange(len(lives)), lives)[:n]
        keep = np.ones(n, bool)
        start = np.cumsum(lives) - lives
        for k in np.flatnonzero((rng.random(len(lives)) < 0.02) & (start + lives < n)):
            a, b = start[k] + lives[k] // 3, start[k] + lives[k] * 2 // 3
            keep[a:b] = False
            evictions.append((first + k, a, b))
        requests.append(first + life[keep])
        steps.append(np.flatnonzero(keep))
        first += int(life[-1]) + 1
    return np.concatenate(requests), np.concatenate(steps), np.array(evictions, np.int64).reshape(-1, 3)


def _steps(rng: np.random.Generator, n: int) -> tuple[Steps, Segments, Ints]:
    size = rng.integers(20, 41, n)
    eager = size > 32
    padded = np.where(size <= 24, 24, 32)
    kv = size * rng.integers(300, 600, n)
    decode = ((600_000 + 110_000 * padded + 20 * kv) * rng.lognormal(0, 0.03, n)).astype(np.int64)
    decode = np.where(eager, decode * 2, decode)
    prefill = np.where(rng.random(n) < 0.15, rng.integers(500_000, 40_000_000, n), 5_000)
    tok = np.where(rng.random(n) < 0.02, rng.integers(1_000_000, 60_000_000, n), 1_000)
    swap = np.full(n, 4_000)
    length = np.stack([tok, swap, prefill, decode])
    offset = 10_000 + np.cumsum(length + 2_000, axis=0) - 2_000
    step_length = offset[-1] + 60_000
    t0 = np.cumsum(step_length) - step_length
    seg_t1 = t0 + offset
    seg_t0 = seg_t1 - length
    missing = np.full(n, -1)
    steps = Steps(
        np.arange(n), t0, t0 + step_length, seg_t1[-1] + 2_000, np.where(eager, EAGER, CAPTURED),
        np.where(eager, size, padded), size, np.where(prefill > 5_000, 100, 0), kv, missing, missing, missing,
    )  # fmt: skip
    row = np.repeat(np.arange(n), 4)
    none = np.full(4 * n, -1)
    segments = Segments(
        row, np.tile(np.arange(4), n), np.zeros(4 * n, np.int64), seg_t0.T.reshape(-1), seg_t1.T.reshape(-1), none, none
    )
    return steps, segments, seg_t1[-1]
