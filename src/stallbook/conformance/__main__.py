"""`python -m stallbook.conformance MODULE:ENGINE`: put an adapter through the suite and print what holds."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from stallbook.conformance.outcome import Finding
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
    try:
        engine = getattr(import_module(module), name or "ENGINE")
    except (ModuleNotFoundError, AttributeError) as error:
        parser.error(f"{asked.engine}: {error}")
    for part in asked.only or PARTS:
        if asked.folder is not None and (asked.folder / part).exists():
            parser.error(f"{asked.folder / part} is of another run; give a new folder, or remove it")
    with tempfile.TemporaryDirectory() as temporary:
        outcome = conform(engine, asked.folder or Path(temporary), only=asked.only, told=_progress)
    print(outcome.table())
    if outcome.failed:
        kept = f"are in {asked.folder}/" if asked.folder else "were not kept; with --folder FOLDER they are"
        print(f"Logs, and what the engine printed, {kept}.")
    return 0 if outcome.held else 1


def _progress(finding: Finding) -> None:
    """Each part takes the engine's start-up and a script, several times."""
    if sys.stderr.isatty():
        print(f"\r\033[K{finding.part}: {finding.name}", end="\n" if finding.held is False else "", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
