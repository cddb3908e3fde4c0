"""What counts as a gap, which cause is primary, and the boundaries before and after the engine's."""

from cases.build import arrive, case, dec, deliver, dev, evict, gap, gc, seg, start, step

CASES = [
    case(
        "several-tokens",
        "An emission of 4 tokens ends one gap, not four; one of none is dropped, so a waits from 10 to 30.",
        [
            start(),
            step(1, 0, 10, dec(0, 10), emit=10, to={"a": 4, "b": 1}),
            step(2, 10, 20, dec(10, 20), emit=20, to={"a": 0, "b": 1}),
            step(3, 20, 30, dec(20, 30), emit=30, to={"a": 2, "b": 1}),
        ],
        [
            gap("a", 0, 10, "clean", fwd=10),
            gap("a", 10, 30, "clean", fwd=20),
            gap("b", 10, 20, "clean", fwd=10),
            gap("b", 20, 30, "clean", fwd=10),
        ],
    ),
    case(
        "emit-lines-joined",
        "Two emit lines of one step with one stamp are one emission each of a and b.",
        [
            start(0, "ab"),
            step(1, 0, 10, dec(0, 10), emit=10, to="a"),
            [{"e": "emit", "step": 1, "t": 10, "tokens": {"b": 1}}],
        ],
        [gap("a", 0, 10, "clean", fwd=10), gap("b", 0, 10, "clean", fwd=10)],
    ),
    case(
        "primary-needs-a-millisecond",
        "tok of 1 ms in 4 is 25% and enough; 0.999999 ms is not, though it is 50%.",
        [
            start(),
            step(1, 0, 4, seg("tok", 0, 1), dec(1, 4), emit=4),
            step(2, 4, 6, seg("tok", 4, 4.999999), dec(5, 6), emit=6),
        ],
        [
            gap("a", 0, 4, "tok", tok=1, fwd=3),
            gap("a", 4, 6, "clean", tok=0.999999, fwd=1, residual=0.000001),
        ],
    ),
    case(
        "primary-needs-a-quarter",
        "tok of 4.999999 in 20 is under a quarter; 5 is not. prefill and tok tie at 5: section 2's order.",
        [
            start(),
            step(1, 0, 20, seg("tok", 0, 4.999999), dec(5, 20), emit=20),
            step(2, 20, 40, seg("tok", 20, 25), seg("prefill", 25, 30), dec(30, 40), prefill=1, emit=40),
        ],
        [
            gap("a", 0, 20, "clean", tok=4.999999, fwd=15, residual=0.000001),
            gap("a", 20, 40, "prefill", tok=5, prefill=5, fwd=10),
        ],
    ),
    case(
        "primaries-among-others",
        "Named causes tie by name after everything of section 2: sample before other:kv, other:kv before other:lora.",
        [
            start(),
            step(1, 0, 20, seg("kv", 0, 5), seg("sample", 5, 10), dec(10, 20), emit=20),
            step(2, 20, 40, seg("lora", 20, 25), seg("kv", 25, 30), dec(30, 40), emit=40),
        ],
        [
            gap("a", 0, 20, "sample", other_kv=5, sample=5, fwd=10),
            gap("a", 20, 40, "other:kv", other_lora=5, other_kv=5, fwd=10),
        ],
        [gap("a", 0, 20, "clean", fwd=10, residual=10), gap("a", 20, 40, "clean", fwd=10, residual=10)],
    ),
    case(
        "residual-is-no-cause",
        "30 ms that nobody recorded: named residual, primary clean.",
        [start(), step(1, 30, 40, dec(30, 40), emit=40)],
        [gap("a", 0, 40, "clean", residual=30, fwd=10)],
    ),
    case(
        "first-token",
        "Arrived 0, own tok [2, 6) with a pause [3, 5) and run delay in it, admitted 10: queue 6, tok 4 (whole). Then "
        "step 1 decodes b without a to 20: unscheduled. Own prefill [22, 40), residual 2.",
        [
            arrive("a", 0, 10),
            step(0, 0, 8, seg("tok", 2, 6, delay=1, of="a"), n=0, emit=10, to="b"),
            step(1, 10, 20, dec(10, 20), emit=20, to="b", members="b"),
            step(2, 20, 40, seg("prefill", 22, 40, of="a"), n=0, prefill=9, emit=40, to="ab", members="a"),
            gc(3, 5),
        ],
        [gap("b", 10, 20, "clean", fwd=10), gap("b", 20, 40, "prefill", prefill=18, residual=2)],
        ttft={"a": {"queue": 6, "tok": 4, "unscheduled": 10, "prefill": 18, "residual": 2}},
    ),
    case(
        "first-token-not-admitted",
        "No `admit`: no queue. The tok of another is tok like any; an eviction before the first token is preempt.",
        [
            arrive("a", 0),
            step(0, 0, 5, seg("tok", 0, 5, of="z"), n=0),
            step(1, 5, 30, seg("prefill", 5, 25, of="a"), n=0, prefill=9, emit=30),
            evict("a", 10, 20),
        ],
        [],
        ttft={"a": {"tok": 5, "prefill": 10, "preempt": 10, "residual": 5}},
    ),
    case(
        "first-token-of-none",
        "Arrived and admitted, but never emitted: no first token to explain, and none to crash on.",
        [arrive("a", 0, 5), step(0, 0, 5, n=0)],
        [],
        ttft={},
    ),
    case(
        "delivered",
        "Engine 0, 20, 40. Frontend 2, 23, 41; client 5, 24, 50. Client's gap [24, 50): engine to 40, frontend 1, "
        "network 9. Frontend's [23, 41): engine [23, 40), frontend 1.",
        [
            start(),
            step(1, 0, 20, dec(10, 20), emit=20),
            step(2, 20, 40, seg("tok", 20, 30), dec(30, 40), emit=40),
            deliver("a", "frontend", 2, 23, 41),
            deliver("a", "client", 5, 24, 50),
        ],
        [gap("a", 0, 20, "clean", fwd=10, residual=10), gap("a", 20, 40, "tok", tok=10, fwd=10)],
        deliveries={
            "frontend": [
                gap("a", 2, 23, "clean", fwd=10, residual=8, frontend=3),
                gap("a", 23, 41, "tok", tok=7, fwd=10, frontend=1),
            ],
            "client": [
                gap("a", 5, 24, "clean", residual=5, fwd=10, frontend=3, network=1),
                gap("a", 24, 50, "network", tok=6, fwd=10, frontend=1, network=9),
            ],
        },
    ),
    case(
        "delivered-late",
        "The engine emitted at 10 and 20, the frontend held both back to 50 and 90: no engine part, all frontend.",
        [
            step(0, 0, 10, dec(0, 10), emit=10),
            step(1, 10, 20, dec(10, 20), emit=20),
            deliver("a", "frontend", 50, 90),
        ],
        [gap("a", 10, 20, "clean", fwd=10)],
        deliveries={"frontend": [gap("a", 50, 90, "frontend", frontend=40)]},
    ),
    case(
        "delivered-in-bundles",
        "Emissions of 1, 3 and 1 tokens at 0, 10 and 30. The client gets 2, then 3: the second begins with the second "
        "token of the emission at 10, before the first delivery: all [12, 33) is frontend.",
        [
            start(),
            step(1, 0, 10, dec(0, 10), emit=10, to={"a": 3}),
            step(2, 10, 30, dec(20, 30), emit=30),
            deliver("a", "client", 12, tokens=2),
            deliver("a", "client", 33, tokens=3),
        ],
        [gap("a", 0, 10, "clean", fwd=10), gap("a", 10, 30, "clean", fwd=10, residual=10)],
        deliveries={"client": [gap("a", 12, 33, "frontend", frontend=21)]},
    ),
    case(
        "steps-without-emission",
        "Two swap-only steps between a's tokens emit nothing: their swap is preempt, nothing was skipped.",
        [
            start(),
            step(1, 0, 5, seg("swap", 0, 5), n=0),
            step(2, 5, 10, seg("swap", 5, 10), n=0),
            step(3, 10, 20, dec(10, 20), emit=20),
        ],
        [gap("a", 0, 20, "preempt", preempt=10, fwd=10)],
    ),
    case(
        "never-emits",
        "c is in the batch and never emits: no gap of it, and the others are as they were.",
        [
            arrive("c", 0, 1),
            start(),
            step(1, 0, 10, dec(0, 10), emit=10, members="ac"),
            step(2, 10, 20, dev(10, 20), emit=20, members="ac"),
        ],
        [gap("a", 0, 10, "clean", fwd=10), gap("a", 10, 20, "clean", fwd=10)],
        [gap("a", 0, 10, "clean", fwd=10), gap("a", 10, 20, "clean", residual=10)],
    ),
]
