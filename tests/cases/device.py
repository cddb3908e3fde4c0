"""Device windows: they hide host work, in the order of their steps. To post they do not exist."""

from cases.build import case, dec, dev, gap, gc, seg, start, step

CASES = [
    case(
        "pause-behind-the-device",
        "The device decodes [0, 20); a pause [5, 15) behind it costs nothing; one [20, 26) after it does.",
        [start(), step(1, 0, 26, dev(0, 20), emit=26), gc(5, 15), gc(20, 26)],
        [gap("a", 0, 26, "clean", fwd=20, gc=6)],
        [gap("a", 0, 26, "gc", gc=16, residual=10)],
        base=(11, 0, 0),
    ),
    case(
        "device-of-a-later-step",
        "In step 1's interval the device runs step 2's window [4, 24): not on the path, host tok [5, 9) is. M is 20.",
        [
            start(),
            step(1, 0, 10, seg("tok", 5, 9), emit=10),
            step(2, 4, 24, dev(4, 24), emit=24),
        ],
        [gap("a", 0, 10, "tok", tok=4, residual=6), gap("a", 10, 24, "slow", fwd=7, slow=7)],
        [gap("a", 0, 10, "tok", tok=4, residual=6), gap("a", 10, 24, "clean", residual=14)],
    ),
    case(
        "device-inside-device",
        "A copy [5, 8) inside the device's decode [0, 15): innermost, 3 and 12.",
        [start(), step(1, 0, 15, dev(0, 15), dev(5, 8, "copy"), emit=15)],
        [gap("a", 0, 15, "clean", fwd=12, other_copy=3)],
        [gap("a", 0, 15, "clean", residual=15)],
    ),
    case(
        "two-devices-at-once",
        "Step 1's prefill window reaches to 20, step 2's decode starts at 10: the older one owns until 20. M of step 2 "
        "is its whole length less inner windows, 20 = 2 B, so the 10 that the gap holds are half forward, half slow.",
        [
            start(),
            step(1, 0, 5, dev(0, 20, "prefill"), n=0, prefill=9),
            step(2, 5, 30, dev(10, 30), emit=30),
        ],
        [gap("a", 0, 30, "prefill", prefill=20, fwd=5, slow=5)],
        [gap("a", 0, 30, "clean", residual=30)],
    ),
    case(
        "host-decode-around-the-device",
        "Host decode [0, 20) launches a device decode [5, 18): net 7 and 13, one M of 20 = 2 B, half slow.",
        [start(), step(1, 0, 20, dec(0, 20), dev(5, 18), emit=20)],
        [gap("a", 0, 20, "slow", fwd=10, slow=10)],
        [gap("a", 0, 20, "clean", fwd=20)],
    ),
    case(
        "run-delay-behind-the-device",
        "The host's decode [0, 10) has a net of 4 outside the device [4, 20): its 6 of run delay count as 4. M = 16.",
        [start(), step(1, 0, 20, dec(0, 10, delay=6), dev(4, 20), emit=20)],
        [gap("a", 0, 20, "clean", os=4, fwd=16)],
        [gap("a", 0, 20, "clean", fwd=10, residual=10)],
    ),
    case(
        "device-after-its-step",
        "The window of step 1 outlives it, [2, 30), and delays the token of step 2: prefill in both intervals.",
        [
            start(),
            step(1, 0, 5, dev(2, 30, "prefill"), n=0, prefill=9, emit=5, to="b"),
            step(2, 5, 42, dev(30, 40), emit=42, to="ab"),
        ],
        [
            gap("a", 0, 42, "prefill", prefill=28, fwd=10, residual=4),
            gap("b", 5, 42, "prefill", prefill=25, fwd=10, residual=2),
        ],
        [gap("a", 0, 42, "clean", residual=42), gap("b", 5, 42, "clean", residual=37)],
    ),
    case(
        "mixed-on-the-device",
        "A device pass of 40 with a chunk in it: forward 10, prefill 30.",
        [start(), step(1, 0, 40, dev(0, 40), prefill=64, emit=40)],
        [gap("a", 0, 40, "prefill", fwd=10, prefill=30)],
        [gap("a", 0, 40, "clean", residual=40)],
    ),
]
