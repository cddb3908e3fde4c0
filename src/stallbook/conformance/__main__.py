"""`python -m stallbook.conformance MODULE:ENGINE`: put an adapter through the suite and print what holds."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from stallbook.conformance.suite import PARTS, conform


def main() -> int:
    """Exit code 0 if all holds, 1 if something fails."""
    parser = argparse.ArgumentParser(prog="python -m stallbook.conformance", description=__doc__)
    parser.add_argument("engine", metavar="MODULE:ENGINE", help="an object that is a stallbook.conformance.Engine")
    parser.add_argument("--only", choices=PARTS, action="append", default=[], help="a part of the suite")
    parser.add_argument("--folder", type=Path, help="where logs and output are kept; by default they are not")
    asked = parser.parse_args()
    module, _, name = asked.engine.partition(":")
    sys.path.insert(0, "")
    engine = getattr(import_module(module), name or "ENGINE")
    with tempfile.TemporaryDirectory() as temporary:
        outcome = conform(engine, asked.folder or Path(temporary), only=asked.only)
    print(outcome.table())
    return 0 if outcome.held else 1


if __name__ == "__main__":
    sys.exit(main())
