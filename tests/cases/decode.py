"""What a decode step is split into: baselines and their edges, padding, slowness, mixed batches, run delay."""

from cases.build import case, dec, evict, gap, gc, seg, start, step

CASES = [
    case(
        "no-captured-step",
        "post has nothing to fit and full neither: no baseline, so an eager step is all forward.",
        [start(), step(1, 0, 90, dec(0, 90), graph="eager", emit=90)],
        [gap("a", 0, 90, "clean", fwd=90)],
        base=None,
    ),
    case(
        "one-distinct-size",
        "Captured at 4: 20 and 24 ms. post's solver: 11 + 2.75 x, B(8) = 33. full: the mean, 22, at every size.",
        [
            start(),
            step(1, 0, 20, dec(0, 20), n=4, emit=20),
            step(2, 20, 44, dec(20, 44), n=4, padded=4, emit=44),
            step(3, 44, 94, dec(44, 94), n=8, graph="eager", emit=94),
        ],
        [
            gap("a", 0, 20, "clean", fwd=20),
            gap("a", 20, 44, "clean", fwd=24),
            gap("a", 44, 94, "graph", fwd=22, graph=28),
        ],
        [
            gap("a", 0, 20, "clean", fwd=20),
            gap("a", 20, 44, "clean", fwd=24),
            gap("a", 44, 94, "graph", fwd=33, graph=17),
        ],
        base=None,
        fit=(22, 0, 0),
    ),
    case(
        "post-fits-a-line",
        "Captured 2 -> 12, 4 -> 18 (a pause of 5 taken out): 6 + 3 x. Eager at 8 rows: B = 30 of 50. full fits steps "
        "without a pause only: one size is left, its mean of 12 holds at every size.",
        [
            start(),
            step(1, 0, 12, dec(0, 12), n=1, padded=2, emit=12),
            step(2, 12, 35, dec(12, 35), n=4, padded=4, emit=35),
            step(3, 35, 85, dec(35, 85), n=8, graph="eager", emit=85),
            gc(20, 25),
        ],
        [
            gap("a", 0, 12, "clean", fwd=12),
            gap("a", 12, 35, "clean", fwd=18, gc=5),
            gap("a", 35, 85, "graph", fwd=12, graph=38),
        ],
        [
            gap("a", 0, 12, "clean", fwd=12),
            gap("a", 12, 35, "clean", fwd=18, gc=5),
            gap("a", 35, 85, "graph", fwd=30, graph=20),
        ],
        base=None,
        fit=(12, 0, 0),
    ),
    case(
        "negative-baseline",
        "B = -5 counts as 0, and B(P) = 0 is no baseline: nothing is charged to graph by guess, under both rules.",
        [start(), step(1, 0, 40, dec(0, 40), graph="eager", emit=40)],
        [gap("a", 0, 40, "clean", fwd=40)],
        base=(-5, 0, 0),
    ),
    case(
        "zero-baseline",
        "B(P) = 0: a captured step is never twice nothing, so neither slow nor pad.",
        [start(), step(1, 0, 40, dec(0, 40), n=2, padded=4, emit=40)],
        [gap("a", 0, 40, "clean", fwd=40)],
        base=(0, 0, 0),
    ),
    case(
        "kv-tokens-needed",
        "B = 4 + 0.5 a KV token. Step 1 attended 12: B = 10, graph 20. Step 2 does not say: no baseline, all forward.",
        [
            start(),
            step(1, 0, 30, dec(0, 30), graph="eager", kv=12, emit=30),
            step(2, 30, 60, dec(30, 60), graph="eager", emit=60),
        ],
        [gap("a", 0, 30, "graph", fwd=10, graph=20), gap("a", 30, 60, "clean", fwd=30)],
        base=(4, 0, 0.5),
    ),
    case(
        "exactly-twice",
        "M = 20 = 2 B is slow, one nanosecond less is not.",
        [
            start(),
            step(1, 0, 20, dec(0, 20), emit=20),
            step(2, 20, 40, dec(20, 39.999999), emit=40),
        ],
        [
            gap("a", 0, 20, "slow", fwd=10, slow=10),
            gap("a", 20, 40, "clean", fwd=19.999999, residual=0.000001),
        ],
        [gap("a", 0, 20, "clean", fwd=20), gap("a", 20, 40, "clean", fwd=19.999999, residual=0.000001)],
    ),
    case(
        "padded-rows",
        "B(2) = 6, B(6) = 10. M = 12: pad 4. M = 5, half of B(P): pad 2. M = 20 = 2 B(P): fwd 6, pad 4, slow 10.",
        [
            start(),
            step(1, 0, 12, dec(0, 12), n=2, padded=6, emit=12),
            step(2, 12, 17, dec(12, 17), n=2, padded=6, emit=17),
            step(3, 17, 37, dec(17, 37), n=2, padded=6, emit=37),
        ],
        [
            gap("a", 0, 12, "clean", pad=4, fwd=8),
            gap("a", 12, 17, "clean", pad=2, fwd=3),
            gap("a", 17, 37, "slow", fwd=6, pad=4, slow=10),
        ],
        [
            gap("a", 0, 12, "clean", fwd=12),
            gap("a", 12, 17, "clean", fwd=5),
            gap("a", 17, 37, "clean", fwd=20),
        ],
        base=(4, 1, 0),
    ),
    case(
        "falling-baseline",
        "B(2) = 16 counts as B(6) = 8: no pad. M = 10 is forward; M = 20 >= 16 is 8 of forward and 12 slow.",
        [
            start(),
            step(1, 0, 10, dec(0, 10), n=2, padded=6, emit=10),
            step(2, 10, 30, dec(10, 30), n=2, padded=6, emit=30),
        ],
        [gap("a", 0, 10, "clean", fwd=10), gap("a", 10, 30, "slow", fwd=8, slow=12)],
        [gap("a", 0, 10, "clean", fwd=10), gap("a", 10, 30, "clean", fwd=20)],
        base=(20, -2, 0),
    ),
    case(
        "no-captured-path",
        "An engine without graphs: P = n whatever `padded` says, B(2) = 6, M = 15 >= 12 is slow 9, never graph or pad.",
        [start(), step(1, 0, 15, dec(0, 15), n=2, graph=None, padded=6, emit=15)],
        [gap("a", 0, 15, "slow", fwd=6, slow=9)],
        [gap("a", 0, 15, "clean", fwd=15)],
        base=(4, 1, 0),
    ),
    case(
        "eager-below-baseline",
        "An eager step faster than its baseline: fwd = min(B, M), no graph, nothing negative.",
        [start(), step(1, 0, 7, dec(0, 7), graph="eager", emit=7)],
        [gap("a", 0, 7, "clean", fwd=7)],
    ),
    case(
        "mixed",
        "Prefill tokens in the same forward: min(B(1), M) forward, rest prefill. Step 2 is below B. post: graph.",
        [
            start(),
            step(1, 0, 40, dec(0, 40), graph="eager", prefill=64, emit=40),
            step(2, 40, 48, dec(40, 48), graph="captured", prefill=64, emit=48),
        ],
        [gap("a", 0, 40, "prefill", fwd=10, prefill=30), gap("a", 40, 48, "clean", fwd=8)],
        [gap("a", 0, 40, "graph", fwd=10, graph=30), gap("a", 40, 48, "clean", fwd=8)],
    ),
    case(
        "mixed-without-decode-rows",
        "No decode rows: the whole pass [0, 30) is prefill; step 2 decodes 10. post: captured, all forward.",
        [
            start(),
            step(1, 0, 30, dec(0, 30), n=0, prefill=64),
            step(2, 30, 40, dec(30, 40), emit=40),
        ],
        [gap("a", 0, 40, "prefill", prefill=30, fwd=10)],
        [gap("a", 0, 40, "clean", fwd=40)],
    ),
    case(
        "mixed-with-its-own-prefill",
        "A prefill segment of its own, even of no length, and the step is not mixed: its excess is graph.",
        [
            start(),
            step(1, 0, 40, seg("prefill", 3, 3), dec(3, 40), graph="eager", prefill=64, emit=40),
        ],
        [gap("a", 0, 40, "graph", fwd=10, graph=27, residual=3)],
    ),
    case(
        "mixed-without-a-baseline",
        "One decode row, three prefill tokens, no baseline: 40 split by token share, 10 and 30.",
        [start(), step(1, 0, 40, dec(0, 40), graph="eager", prefill=3, emit=40)],
        [gap("a", 0, 40, "prefill", fwd=10, prefill=30)],
        [gap("a", 0, 40, "clean", fwd=40)],
        base=None,
    ),
    case(
        "mixed-in-halves",
        "A mixed step of 40 (forward 10, prefill 30) of which a, evicted [0, 20), holds half: 5 and 15.",
        [start(), step(1, 0, 40, dec(0, 40), prefill=64, emit=40), evict("a", 0, 20)],
        [gap("a", 0, 40, "preempt", preempt=20, fwd=5, prefill=15)],
        [gap("a", 0, 40, "preempt", preempt=20, fwd=20)],
    ),
    case(
        "run-delay-in-a-segment",
        "os is carved first: tok 10 = os 4 + tok 6; eager 30 = os 5, M = 25, graph 15.",
        [
            start(),
            step(1, 0, 40, seg("tok", 0, 10, delay=4), dec(10, 40, delay=5), graph="eager", emit=40),
        ],
        [gap("a", 0, 40, "graph", os=9, tok=6, fwd=10, graph=15)],
        [gap("a", 0, 40, "graph", tok=10, fwd=10, graph=20)],
    ),
    case(
        "run-delay-over-the-net",
        "30 of run delay in a decode whose net, a pause of 8 taken out, is 12: os is 12, and no forward is left.",
        [start(), step(1, 0, 20, dec(0, 20, delay=30), emit=20), gc(4, 12)],
        [gap("a", 0, 20, "os", os=12, gc=8)],
        [gap("a", 0, 20, "gc", gc=8, fwd=12)],
    ),
    case(
        "run-delay-makes-it-fast-again",
        "M = 25 is over 2 B, but 10 of it is os: 15 < 20 is not slow.",
        [start(), step(1, 0, 25, dec(0, 25, delay=10), emit=25)],
        [gap("a", 0, 25, "os", os=10, fwd=15)],
        [gap("a", 0, 25, "clean", fwd=25)],
    ),
    case(
        "run-delay-of-a-step",
        "10 in a step of 40 ms, of which prefill holds 8 and decode 16: os 2 and 4; the other 4 stay residual.",
        [
            start(),
            step(1, 0, 40, seg("prefill", 0, 8), dec(8, 24), delay=10, prefill=5, emit=40),
        ],
        [gap("a", 0, 40, "clean", os=6, prefill=6, fwd=12, residual=16)],
        [gap("a", 0, 40, "clean", prefill=8, fwd=16, residual=16)],
    ),
    case(
        "run-delay-of-a-step-capped",
        "90 in a window of 40 counts as 40: every segment is os whole.",
        [start(), step(1, 0, 40, seg("tok", 0, 8), dec(8, 40), delay=90, emit=40)],
        [gap("a", 0, 40, "os", os=40)],
        [gap("a", 0, 40, "clean", tok=8, fwd=32)],
    ),
    case(
        "run-delay-in-halves",
        "Decode 40, os 20, M = 20 = 2 B: fwd 10, slow 10. Evicted [0, 20): half of each.",
        [start(), step(1, 0, 40, dec(0, 40, delay=20), emit=40), evict("a", 0, 20)],
        [gap("a", 0, 40, "preempt", preempt=20, os=10, fwd=5, slow=5)],
        [gap("a", 0, 40, "preempt", preempt=20, fwd=20)],
    ),
    case(
        "decode-in-two-pieces",
        "M is of all the step's decode segments: 12 + 18 = 30, graph 20; each piece gives two thirds of itself.",
        [
            step(0, 0, 12, n=0, emit=0),
            step(1, 0, 12, n=0, emit=12),
            step(2, 0, 35, dec(0, 12), dec(17, 35), graph="eager", emit=35),
        ],
        [
            gap("a", 0, 12, "graph", fwd=4, graph=8),
            gap("a", 12, 35, "graph", fwd=6, graph=12, residual=5),
        ],
    ),
]
