"""What the recorder costs a step of SGLang: `python benchmarks/sglang_steps.py`, where `make test-sglang` has run.

The steps are those of a real server's scheduler, in whose process `sglang_steps/sitecustomize.py` takes the samples.
See `step_cost.py` for how it is measured.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from step_cost import asked

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests" / name) for name in ("", "sglang")]

import sglang_server  # noqa: E402

from engine_load import calm  # noqa: E402

TOKENS = 420
"""Of each answer."""
TRIES = 200
"""So many batches are begun at most."""


def main() -> None:
    """Measure and print, for each loop."""
    told = asked(__doc__)
    for layout in sglang_server.LOOPS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            out = folder / "told.txt"
            wanted = {"quadruples": told.quadruples, "steps": told.steps, "rows": told.rows, "out": str(out)}
            paths = [str(HERE / "sglang_steps"), str(HERE), os.environ.get("PYTHONPATH", "")]
            environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "SGLANG_STEPS": json.dumps(wanted)}
            with sglang_server.serving(
                told.model.parent, folder / "server.txt", layout, folder / "out.stall",
                pool=sglang_server.LARGE_POOL, environment=environment, model=told.model.name,
            ) as server:  # fmt: skip
                for seed in range(TRIES):
                    answers = sglang_server.load(server.url, calm(seed, told.rows, TOKENS), told.rows)
                    if wrong := [one.error for one in answers if one.error]:
                        raise SystemExit(f"a request failed: {wrong[0]}\n{server.tail()}")
                    if out.exists():
                        break
            print(f"{layout.name} loop\n{out.read_text() if out.exists() else 'no batch stayed alike'}", flush=True)


if __name__ == "__main__":
    main()
