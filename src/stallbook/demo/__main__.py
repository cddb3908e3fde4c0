"""One run in a process of its own: `python -m stallbook.demo --settings JSON --out PATH [--progress]`.

Sets the BLAS threads before NumPy is imported, then serves. Prints JSON lines: one a tick with `--progress`,
and a last one `{"done": SUMMARY}`. Exit codes: 0 done, 2 bad input (one line on stderr), 130 interrupted, with
what was recorded so far readable.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from stallbook.demo import Progress, Settings, Stop, serve
from stallbook.errors import StallbookError

__all__ = ["main"]

BLAS_VARIABLES = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Parse, run, print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stallbook.demo", description="One run of the demonstrator.")
    parser.add_argument("--settings", default="{}", metavar="JSON", help="a JSON object of settings")
    parser.add_argument("--out", type=Path, metavar="PATH", help="where to leave the log")
    parser.add_argument("--progress", action="store_true", help="print a JSON line about five times a second")
    args = parser.parse_args(argv)
    stop = Stop()
    try:
        settings = Settings.from_json(args.settings)
        if args.out is None and settings.record:
            raise StallbookError("no-out", "there is no place for the log", "give --out PATH, or record=false")
        _set_blas(settings.blas_threads)
        _catch_signals(stop)
        summary = serve(settings, args.out, _printer(stop) if args.progress else None, stop=stop)
    except StallbookError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    _print_line({"done": summary.as_dict()}, stop)
    return 130 if summary.interrupted else 0


def _set_blas(threads: int) -> None:
    os.environ.update(dict.fromkeys(BLAS_VARIABLES, str(threads)))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # training would leave a pool of threads behind


def _catch_signals(stop: Stop) -> None:
    """The first signal ends the run at the next step, with a whole log; a second one ends it where it stands."""

    def asked(_signal: int, _frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.request()

    signal.signal(signal.SIGINT, asked)
    signal.signal(signal.SIGTERM, asked)


def _printer(stop: Stop) -> Callable[[Progress], None]:
    return lambda tick: _print_line(asdict(tick), stop)


def _print_line(line: dict[str, object], stop: Stop) -> None:
    """A reader that went away wants no more run either."""
    try:
        print(json.dumps(line), flush=True)
    except BrokenPipeError:
        stop.request()
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  (so that the exit's flush finds an open file)


if __name__ == "__main__":
    raise SystemExit(main())
