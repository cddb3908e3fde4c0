"""What the recorder costs a real vLLM: `python benchmarks/vllm_cost.py`, in the environment of `make test-vllm`.

See `engine_cost.py` for how it is measured.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from engine_cost import Engine, main

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "vllm"))

import vllm_server
from vllm_load import load


def serving(
    model: Path, output: Path, layout: vllm_server.Layout, log: Path | None
) -> AbstractContextManager[vllm_server.Server]:  # fmt: skip
    """With a pool that never runs out."""
    environment = {"PYTHONHASHSEED": "0"}
    return vllm_server.serving(
        model.parent, output, layout, log, blocks=vllm_server.LARGE_POOL, environment=environment, model=model.name
    )  # fmt: skip


if __name__ == "__main__":
    layouts = {one.name: one for one in vllm_server.LAYOUTS}
    main(Engine("engine-core", layouts, serving, load), __doc__.split("\n\n")[0])
