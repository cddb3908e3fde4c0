"""One run in a process of its own: `python -m stallbook.inject --task JSON --log PATH --truth FILE`.

Sets the BLAS threads before NumPy is imported. Prints JSON lines: progress, and a last one `{"done": COUNTS}`.
Exit codes: 0 done, 2 bad input (one line on stderr), 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from stallbook.demo.__main__ import BLAS_VARIABLES
from stallbook.demo.summary import Stop
from stallbook.errors import StallbookError
from stallbook.inject.task import Task

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Parse, run, print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stallbook.inject", description="One run with planted faults.")
    parser.add_argument("--task", metavar="JSON", help="what to plant")
    parser.add_argument("--log", type=Path, metavar="PATH", help="where to leave the log")
    parser.add_argument("--truth", type=Path, metavar="FILE", help="where to leave the truth")
    parser.add_argument("--rival", type=int, metavar="CPU", help="be the competitor on this CPU instead")
    args = parser.parse_args(argv)
    if args.rival is not None:
        from stallbook.inject.machine import rival

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return rival(args.rival, time.perf_counter_ns)
    os.environ.update(dict.fromkeys(BLAS_VARIABLES, "1"))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from stallbook.inject.runner import run

    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.request())
    try:
        told = run(Task.from_json(args.task), args.log, args.truth, stop, _say)
    except StallbookError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps({"done": told}), flush=True)
    return 130 if told["interrupted"] else 0


def _say(done: int, total: int) -> None:
    print(json.dumps({"planted": done, "of": total}), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
