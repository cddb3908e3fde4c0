"""The command line: one module a command. It translates arguments and decides nothing.

Exit codes: 0 done; 1 a check that was asked for failed; 2 bad usage or input, said in one line; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Nothing that a user can cause ends in a traceback."""
    try:
        # Imported here: it takes a moment, in which Ctrl-C should end as quietly as it does later.
        from stallbook.cli.application import run

        return run(args)
    except KeyboardInterrupt:
        print("stallbook: interrupted", file=sys.stderr)
        return 130
