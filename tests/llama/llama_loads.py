"""The loads of the tests. `python llama_loads.py HOME FOLDER` records them: so tests/data/llama was made."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from llama_load import Answer, Ask, ids, load, save
from llama_server import Server, serving


def four(server: Server) -> list[Answer]:
    """Four streams at once."""
    rng = Random(1)
    return load(server.url, [Ask(ids(rng, 20 + 10 * i), 48) for i in range(4)])


def mixed(server: Server) -> list[Answer]:
    """A long prompt beside streams that decode, more requests than slots, and one of llama.cpp's own endpoint."""
    rng = Random(2)
    asks = [Ask(ids(rng, 20), 40), Ask(ids(rng, 20), 40), Ask(ids(rng, 300), 16, 0.05)]
    asks += [Ask(ids(rng, 40), 16, 0.08), Ask(ids(rng, 40), 16, 0.08)]
    return load(server.url, [*asks, Ask(ids(rng, 20), 12, 0.1, path="/completion")])


def full(server: Server) -> list[Answer]:
    """More tokens than the KV cache holds: what is under way fails, and the next request is served."""
    rng = Random(3)
    early = load(server.url, [Ask(ids(rng, 30), 20) for _ in range(2)])
    failing = load(server.url, [Ask(ids(rng, 40), 60) for _ in range(4)])
    return [*early, *failing, *load(server.url, [Ask(ids(rng, 20), 8)])]


def busy(server: Server) -> list[Answer]:
    """Eight streams for a while, and long prompts that come in between."""
    rng = Random(4)
    asks = [Ask(ids(rng, rng.randint(20, 60)), rng.randint(80, 240), 0.35 * i) for i in range(36)]
    asks += [Ask(ids(rng, rng.randint(800, 1600)), 24, 0.7 + 1.5 * i) for i in range(8)]
    return load(server.url, asks)


LOADS: dict[str, tuple[Callable[[Server], list[Answer]], dict[str, int]]] = {
    "four": (four, {}), "mixed": (mixed, {"batch": 64}), "full": (full, {"context": 256, "batch": 64}),
    "busy": (busy, {"context": 16384, "slots": 8, "batch": 512}),
}  # fmt: skip


def record(name: str, home: Path, folder: Path) -> list[Answer]:
    """Run one load; its log and its streams are in the folder then."""
    run, settings = LOADS[name]
    with serving(home, folder / f"{name}.log", **settings) as server:
        answers = run(server)
    save(answers, folder / f"{name}.sse")
    return answers


def main() -> None:
    """Record all of them, gzipped."""
    home, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    for name in LOADS:
        print(name, [answer.error for answer in record(name, home, folder)])
        for kind in ("log", "sse"):
            file = folder / f"{name}.{kind}"
            (folder / f"{name}.{kind}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))


if __name__ == "__main__":
    main()
