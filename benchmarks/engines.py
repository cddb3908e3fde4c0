"""The same requests on every engine that is here, and one page: `python benchmarks/engines.py --out out/engines`.

The demonstrator serves first. Its requests, as its log has them (when each came, how many tokens its prompt and its
answer have), are then sent to vLLM, SGLang, transformers and llama.cpp, one after another, each in the environment that
its tests made outside the checkout (`make test-vllm`, `make test-sglang`, ...), on the CPU, with a KV pool of as many
tokens. What has no environment is left out, and said. The models are tiny, each engine's its own: how fast an engine is
says nothing; where its tail goes does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stallbook"
HOMES = {
    "vllm": CACHE / "vllm-0.32.0", "sglang": CACHE / "sglang-0.5.23", "transformers": CACHE / "transformers-5.24.0",
    "llama": CACHE / "xllamacpp",
}  # fmt: skip
ENGINES = ("demo", *HOMES)
POOL, BUDGET, SEQUENCES, LONGEST = 4096, 512, 16, 3072
"""Tokens of KV, so few that long answers meet in it; tokens of a step; requests that may run at once; the most tokens
of one, prompt and answer."""

Load = list[tuple[str, float, int, int]]
"""A request each: its name, when it is sent in seconds, its prompt's tokens and its answer's."""


def main() -> None:
    """Serve on each engine, then draw the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/engines"), help="a folder; logs that are there stay")
    parser.add_argument("--engines", default=",".join(ENGINES), help="which, of " + ", ".join(ENGINES))
    parser.add_argument("--home", action="append", default=[], metavar="ENGINE=FOLDER", help="an environment elsewhere")
    parser.add_argument("--seconds", type=float, default=60, help="how long requests come")
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", choices=HOMES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.serve:  # inside an engine's environment
        told = json.loads((asked.out / "requests.json").read_text(encoding="utf-8"))
        serve(asked.serve, Path(sys.prefix).parent, asked.out, [tuple(one) for one in told])
        return
    homes = HOMES | {name: Path(folder) for name, _, folder in (one.partition("=") for one in asked.home)}
    logs = []
    for name in asked.engines.split(","):
        log = asked.out / f"{name}.stall"
        if not log.exists():
            print(f"{name} ...", file=sys.stderr, flush=True)
            demonstrate(asked, log) if name == "demo" else elsewhere(name, homes[name], asked.out)
        logs += [str(log)] if log.exists() else []
    if not logs:
        raise SystemExit("no engine served")
    page = [sys.executable, "-m", "stallbook", "report", *logs, "--force"]
    subprocess.run([*page, "--format", "html", "--out", str(asked.out / "engines.html")], check=True)
    subprocess.run([*page, "--format", "png", "--out", str(asked.out / "engines.png")], check=True)
    subprocess.run([*page, "--brief"], check=True)


def demonstrate(asked: argparse.Namespace, log: Path) -> None:
    """Serve the demonstrator's own requests, and keep them for the others."""
    import stallbook as sb

    words = ["demo", "--seconds", asked.seconds, "--rate", asked.rate, "--seed", asked.seed, "--kv-blocks", POOL // 16]
    words += ["--token-budget", BUDGET, "--max-num-seqs", SEQUENCES, "--out", log, "--format", "json"]
    subprocess.run([sys.executable, "-m", "stallbook", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    r = sb.open(log).requests
    start = int(r.arrive.min())
    rows = zip(r.names, r.arrive.tolist(), r.prompt_tokens.tolist(), r.max_tokens.tolist(), strict=True)
    told = [(name, (t - start) / 1e9, prompt, limit) for name, t, prompt, limit in rows]
    (log.parent / "requests.json").write_text(json.dumps(told, indent=0) + "\n", encoding="utf-8")


def elsewhere(name: str, home: Path, out: Path) -> None:
    """Run this file in an engine's environment."""
    python = home / "venv" / "bin" / "python"
    if not python.exists():
        print(f"  left out: no environment in {home} (make test-{name})", file=sys.stderr)
        return
    done = subprocess.run([python, __file__, "--serve", name, "--out", out], check=False)
    if done.returncode:
        print(f"  left out: it ended with {done.returncode}; see {out / f'{name}.txt'}", file=sys.stderr)
    elif name == "llama":
        words = [sys.executable, "-m", "stallbook", "convert", out / "llama.log", out / "llama.stall"]
        subprocess.run(words, check=True)


# Inside an engine's environment


def serve(name: str, home: Path, out: Path, load: Load) -> None:
    """Start the engine with its recorder, send everything at its time, end it."""
    sys.path[:0] = [str(TESTS), str(TESTS / name)]
    log, printed = out / ("llama.log" if name == "llama" else f"{name}.stall"), out / f"{name}.txt"
    with STARTED[name](home, printed.resolve(), log.resolve()) as (url, send):
        wrong = [error for error in asyncio.run(replay(url, load, send)) if error]
    for error in sorted(set(wrong)):
        print(f"  {wrong.count(error)} of {len(load)} requests: {error[:200]}", file=sys.stderr)


Send = Callable[[Any, str, tuple[str, float, int, int]], Awaitable[str]]


async def replay(url: str, load: Load, send: Send) -> list[str]:
    """Each request at its time, whatever became of those before it; what went wrong with each."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(256))
    async with session_of() as session:

        async def later(one: tuple[str, float, int, int]) -> str:
            await asyncio.sleep(one[1])
            return await send(session, url, one)

        return list(await asyncio.gather(*map(later, load)))


def session_of() -> Any:
    """What requests are sent with; llama.cpp's need nothing."""
    if find_spec("aiohttp") is None:
        return nullcontext()
    import aiohttp

    limits = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=600)
    return aiohttp.ClientSession(connector=limits[0], timeout=limits[1], read_bufsize=1 << 20)


@contextmanager
def vllm(home: Path, printed: Path, log: Path) -> Iterator[tuple[str, Send]]:
    """vLLM with the worker inside its engine core."""
    from vllm_load import Ask, ask, ids
    from vllm_server import TWO, serving

    async def send(session: Any, url: str, one: tuple[str, float, int, int]) -> str:
        return (await ask(session, url, Ask(one[0], ids(Random(one[0]), one[2]), one[3]))).error

    flags = ("--max-num-batched-tokens", str(BUDGET), "--max-num-seqs", str(SEQUENCES), "--max-model-len", str(LONGEST))
    with serving(home, printed, TWO, log, blocks=POOL // 32, flags=flags) as server:
        yield server.url, send


@contextmanager
def sglang(home: Path, printed: Path, log: Path) -> Iterator[tuple[str, Send]]:
    """SGLang in its default loop."""
    from sglang_server import OVERLAP, ask, serving

    from engine_load import Ask, ids

    async def send(session: Any, url: str, one: tuple[str, float, int, int]) -> str:
        return (await ask(session, url, Ask(one[0], ids(Random(one[0]), one[2]), one[3]))).error

    flags = ("--chunked-prefill-size", str(BUDGET), "--max-running-requests", str(SEQUENCES))
    with serving(home, printed, OVERLAP, log, pool=POOL, flags=flags) as server:
        yield server.url, send


@contextmanager
def transformers(home: Path, printed: Path, log: Path) -> Iterator[tuple[str, Send]]:
    """`transformers serve` with continuous batching."""
    import cb_engines
    import cb_load

    from engine_load import Ask

    cb_engines.BLOCKS, cb_engines.BUDGET = POOL // cb_engines.BLOCK, BUDGET
    texts = cb_load.Texts(cb_engines.MODEL)
    folder = printed.parent / "transformers"
    folder.mkdir(exist_ok=True)

    async def send(session: Any, url: str, one: tuple[str, float, int, int]) -> str:
        return (await cb_load.ask(session, url, Ask(one[0], texts.of(one[2], one[3]), one[3]))).error

    server = cb_engines.Serve(folder, log, {})
    try:
        yield server.url, send
    finally:
        server.stop()


@contextmanager
def llama(home: Path, printed: Path, log: Path) -> Iterator[tuple[str, Send]]:
    """llama.cpp, whose log is its own. It evicts no one: where all meet in its pool, all fail."""
    from llama_load import Answer, Ask, ask, ids
    from llama_server import serving

    async def send(session: Any, url: str, one: tuple[str, float, int, int]) -> str:
        answer = Answer()
        await asyncio.to_thread(ask, url, Ask(ids(Random(one[0]), one[2]), one[3], timings=False), answer)
        return answer.error

    with serving(home, log, slots=SEQUENCES, context=POOL, batch=BUDGET) as server:
        yield server.url, send


STARTED = {"vllm": vllm, "sglang": sglang, "transformers": transformers, "llama": llama}


if __name__ == "__main__":
    main()
