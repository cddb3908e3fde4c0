"""What the recorder costs a real SGLang: `python benchmarks/sglang_cost.py`, in the environment of `make test-sglang`.

See `engine_cost.py` for how it is measured.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from engine_cost import Engine, main

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "sglang"))

import sglang_server


def serving(
    model: Path, output: Path, layout: sglang_server.Layout, log: Path | None
) -> AbstractContextManager[sglang_server.Server]:  # fmt: skip
    """With a pool that never runs out."""
    environment = {"PYTHONHASHSEED": "0"}
    return sglang_server.serving(
        model.parent, output, layout, log, pool=sglang_server.LARGE_POOL, environment=environment, model=model.name
    )  # fmt: skip


if __name__ == "__main__":
    layouts = {one.name: one for one in sglang_server.LOOPS}
    main(Engine("scheduler", layouts, serving, sglang_server.load), __doc__.split("\n\n")[0])
