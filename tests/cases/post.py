"""The six controlled gaps of the post; its baseline is 10 ms unless said, and its figures are the answers."""

from cases.build import case, dec, evict, gap, gc, seg, start, step

CASES = [
    case(
        "post-1-evicted-once",
        "30 ms evicted while others prefill, then a 10 ms decode: 30 + 10, the prefill is context.",
        [start(), evict("a", 0, 30), step(1, 0, 30, seg("prefill", 0, 30), n=0), step(2, 30, 40, dec(30, 40), emit=40)],
        [gap("a", 0, 40, "preempt", preempt=30, fwd=10)],
        context={"prefill": 30},
    ),
    case(
        "post-2-pause-in-eager-step",
        "30 ms eager = 10 of work + 20 of GC; M = 10 = B, so no graph excess.",
        [start(), step(1, 0, 30, dec(0, 30), graph="eager", emit=30), gc(5, 25)],
        [gap("a", 0, 30, "gc", gc=20, fwd=10)],
    ),
    case(
        "post-3-excess-survives",
        "40 ms eager = 30 of work + 10 of GC; M = 30, B = 10, excess 20.",
        [start(), step(1, 0, 40, dec(0, 40), graph="eager", emit=40), gc(10, 20)],
        [gap("a", 0, 40, "graph", gc=10, graph=20, fwd=10)],
    ),
    case(
        "post-4-half-a-segment",
        "The gap is the second half of an eager 40 ms decode of which 75% is excess: 15 + 5.",
        [step(0, 0, 20, n=0, emit=20), step(1, 0, 40, dec(0, 40), graph="eager", emit=40)],
        [gap("a", 20, 40, "graph", graph=15, fwd=5)],
    ),
    case(
        "post-5-pause-between-steps",
        "GC [12, 40) outside every segment, decode [45, 50) at B = 5; 10-12 and 40-45 are residual.",
        [
            step(0, 0, 45, dec(0, 10), emit=10),
            step(1, 45, 50, dec(45, 50), emit=50),
            gc(12, 40),
        ],
        [gap("a", 10, 50, "gc", gc=28, fwd=5, residual=7)],
        base=(5, 0, 0),
    ),
    case(
        "post-6-all-in-one-step",
        "tok 5, swap 2, prefill 33, decode 8, and 2 ms that no segment covers.",
        [
            start(),
            step(
                1, 0, 50, seg("tok", 0, 5), seg("swap", 5, 7), seg("prefill", 7, 40), dec(40, 48), prefill=99, emit=50
            ),
        ],
        [gap("a", 0, 50, "prefill", tok=5, preempt=2, prefill=33, fwd=8, residual=2)],
        base=(8, 0, 0),
    ),
]
