"""What the recorder costs `transformers serve`: `python benchmarks/transformers_cost.py`, in the environment of
`make test-transformers`.

See `engine_cost.py` for how it is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine_cost import Engine, main

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "transformers"))

import cb_engines
import cb_load

from engine_load import Answer, Ask

BLOCKS = 1024
"""A pool that never runs out."""


@contextmanager
def serving(model: Path, output: Path, layout: None, log: Path | None) -> Iterator[cb_engines.Serve]:
    """A healthy server that is gone afterwards."""
    folder = output.with_suffix("")
    folder.mkdir()
    server = cb_engines.Serve(folder, log, {"PYTHONHASHSEED": "0"}, BLOCKS, model)
    try:
        yield server
    finally:
        server.stop()


def load(url: str, asks: Sequence[Ask]) -> list[Answer]:
    """All at once, as texts of as many tokens as the asks have."""
    texts = cb_load.Texts(cb_engines.MODEL)
    sent = [
        one if isinstance(one.prompt, str) else replace(one, prompt=texts.of(len(one.prompt), hash(tuple(one.prompt))))
        for one in asks
    ]
    return cb_load.load(url, sent, len(sent))


if __name__ == "__main__":
    main(Engine("server", {"served": None}, serving, load, cb_engines.MODEL.name), __doc__.split("\n\n")[0])
