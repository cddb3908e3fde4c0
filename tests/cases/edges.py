"""Ends that touch, pauses, zero-length windows, logs with next to nothing in them."""

from cases.build import case, dec, evict, gap, gc, hold, seg, start, step

CASES = [
    case("empty-log", "Only a header: no gap, no crash.", [], []),
    case("empty-log-no-baseline", "The same without a baseline to lean on.", [], [], base=None),
    case("one-token", "A single emission has no gap.", [start()], [], base=None),
    case("one-token-each", "Two requests of one token each: no gap either.", [start(0, "ab")], []),
    case(
        "ends-touch",
        "Eviction, hold, pause, tok and decode end to end; half-open windows leave nothing over. 10 of 50: clean.",
        [
            start(),
            step(1, 0, 50, seg("tok", 30, 40), dec(40, 50), emit=50),
            evict("a", 0, 10),
            hold("a", "kv", 10, 20),
            gc(20, 30),
        ],
        [gap("a", 0, 50, "clean", preempt=10, other_kv=10, gc=10, tok=10, fwd=10)],
        [gap("a", 0, 50, "clean", preempt=10, gc=10, tok=10, fwd=10, residual=10)],
    ),
    case(
        "pause-across-a-step-border",
        "A pause [15, 25) takes 5 of a prefill step and 5 of the decode after it: 13 of 18 and 15 of 20 are left.",
        [
            start(),
            step(1, 2, 20, seg("prefill", 2, 20), n=0, prefill=9),
            step(2, 20, 40, dec(20, 40), emit=40),
            gc(15, 25),
        ],
        [gap("a", 0, 40, "prefill", prefill=13, gc=10, fwd=15, residual=2)],
    ),
    case(
        "pauses-of-two-processes",
        "Engine [10, 20) and worker [15, 30) are a union of 20, not a sum of 25; `api` is off the path. M = 20 < 22.",
        [
            start(),
            step(1, 0, 40, dec(0, 40), emit=40),
            gc(10, 20),
            gc(15, 30, "worker:0"),
            gc(32, 36, "api"),
        ],
        [gap("a", 0, 40, "gc", gc=20, fwd=20)],
        base=(11, 0, 0),
    ),
    case(
        "pauses-of-one-process-overlap",
        "[5, 15) and [10, 20) of the engine merge to 15.",
        [start(), step(1, 0, 25, dec(0, 25), emit=25), gc(5, 15), gc(10, 20)],
        [gap("a", 0, 25, "gc", gc=15, fwd=10)],
    ),
    case(
        "gap-is-the-pause",
        "Emissions at both edges of an engine pause: the gap is the pause, its neighbours have none of it.",
        [
            start(),
            step(1, 0, 10, dec(0, 10), emit=10),
            step(2, 10, 30, dec(10, 30), emit=30),
            step(3, 30, 40, dec(30, 40), emit=40),
            gc(10, 30),
        ],
        [gap("a", 0, 10, "clean", fwd=10), gap("a", 10, 30, "gc", gc=20), gap("a", 30, 40, "clean", fwd=10)],
    ),
    case(
        "gap-inside-a-pause",
        "A worker's pause [5, 90) holds the whole gap [20, 60): all gc. The decode before keeps 5 of 20, the last 10.",
        [
            start(),
            step(1, 0, 20, dec(0, 20), emit=20),
            step(2, 20, 60, dec(20, 60), emit=60),
            step(3, 60, 100, dec(60, 100), emit=100),
            gc(5, 90, "worker:1"),
        ],
        [
            gap("a", 0, 20, "gc", gc=15, fwd=5),
            gap("a", 20, 60, "gc", gc=40),
            gap("a", 60, 100, "gc", gc=30, fwd=10),
        ],
    ),
    case(
        "zero-length-windows",
        "A tok, a pause, a hold and an eviction of no length own nothing; two emissions of one stamp make a gap of 0.",
        [
            start(),
            step(1, 0, 10, seg("tok", 5, 5), dec(0, 10), emit=10),
            step(2, 10, 10, n=1, emit=10),
            gc(5, 5),
            hold("a", "kv", 5, 5),
        ],
        [gap("a", 0, 10, "clean", fwd=10), gap("a", 10, 10, "clean")],
    ),
    case(
        "equal-windows",
        "Two segments [0, 10) of one step: by name, `compile` before `decode`. post knows one of them.",
        [start(), step(1, 0, 10, dec(0, 10), seg("compile", 0, 10), emit=10)],
        [gap("a", 0, 10, "other:compile", other_compile=10)],
        [gap("a", 0, 10, "clean", fwd=10)],
    ),
    case(
        "innermost-wins",
        "decode [0, 30) holds swap [10, 20) that holds tok [12, 15): 20, 7, 3. Of equal starts the shorter is inside.",
        [
            start(),
            step(1, 0, 30, dec(0, 30), seg("swap", 10, 20), seg("tok", 12, 15), emit=30),
            step(2, 30, 40, dec(30, 40), seg("tok", 30, 34), emit=40),
        ],
        [
            gap("a", 0, 30, "clean", fwd=20, preempt=7, tok=3),
            gap("a", 30, 40, "tok", fwd=6, tok=4),
        ],
        base=(11, 0, 0),
    ),
    case(
        "steps-overlap-on-the-host",
        "Step 1 prefills [0, 20), step 2 decodes [10, 30): while both run the older one owns. M of step 2 is 10.",
        [
            start(),
            step(1, 0, 20, seg("prefill", 0, 20), n=0, prefill=9),
            step(2, 5, 30, dec(10, 30), graph="eager", emit=30),
        ],
        [gap("a", 0, 30, "prefill", prefill=20, fwd=10)],
    ),
    case(
        "post-knows-four-names",
        "sched, sample and output are causes of full, transparent under post: inside a decode it keeps the time.",
        [
            start(),
            step(1, 0, 30, seg("sched", 0, 5), dec(5, 25), seg("sample", 20, 25), seg("output", 25, 30), emit=30),
        ],
        [gap("a", 0, 30, "clean", sched=5, fwd=15, sample=5, output=5)],
        [gap("a", 0, 30, "clean", fwd=20, residual=10)],
    ),
    case(
        "thirds-of-nanoseconds",
        "An eager decode of 3 ns, B = 1, cut by two emissions: cumulative graph floor(2/3), floor(4/3), 2 = 0, 1, 1.",
        [
            start(),
            step(1, 0, 1, n=0, emit=1, graph=None),
            step(2, 0, 2, n=0, emit=2, graph=None),
            step(3, 0, 3, dec(0, 3), graph="eager", emit=3),
        ],
        [gap("a", 0, 1, "clean", fwd=1), gap("a", 1, 2, "clean", graph=1), gap("a", 2, 3, "clean", graph=1)],
        base=(1, 0, 0),
        unit=1,
    ),
]
