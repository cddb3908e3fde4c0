"""The tokenizer's own process: texts in on one pipe, token ids out on another, until the input ends.

    python -m stallbook.demo.worker NICE [CPU ...]

It says one "+" when it is ready. It ends with its input, which the kernel closes when the engine dies.
"""

from __future__ import annotations

import os
import signal
import struct
import sys

from stallbook.demo.tokenizer import FRAME, encode, trained

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal group; the engine decides
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    nice, *cpus = map(int, argv)
    os.nice(nice)
    if cpus:
        try:
            os.sched_setaffinity(0, set(cpus))
        except OSError:
            return 2
    trained()
    sink.write(b"+")
    sink.flush()
    while len(head := source.read(FRAME.size)) == FRAME.size:
        key, size = FRAME.unpack(head)
        text = source.read(size)
        if len(text) < size:
            break
        ids = encode(text.decode())
        sink.write(FRAME.pack(key, 4 * len(ids)) + struct.pack(f"<{len(ids)}I", *ids))
        sink.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
