"""What the recorder costs a real engine's server: `vllm_cost.py`, `sglang_cost.py`, `transformers_cost.py`.

Two servers stand side by side, one that records and one that does not, and only one of them is given work at a time:
the same requests, in alternating pairs. Of each run: the CPU time of the engine core's process for each generated
token (to the nanosecond, from the kernel's scheduler), and tokens a second. Beside it the recorder's own account of the
time inside its hooks, as a share of the time in which the engine had work. A ratio's standard error is that of the mean
of the pairs' logarithms. Servers are started anew several times, for two processes of the same program differ too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import stallbook as sb
from engine_load import Answer, Ask, calm, mixed
from engine_server import Server
from stallbook.conformance.evidence import busy_ns
from stallbook.run import UNKNOWN, Run
from step_cost import mean_ratio


@dataclass(frozen=True)
class Engine:
    """An engine's server: how it is started with a log or without, in which layouts, and how it is asked.

    process: what the one that records steps is called. model: which one of the tests' it serves.
    """

    process: str
    layouts: Mapping[str, Any]
    serving: Callable[[Path, Path, Any, Path | None], AbstractContextManager[Server]]
    load: Callable[[str, Sequence[Ask]], list[Answer]]
    model: str = "tiny"


def main(engine: Engine, told: str) -> None:
    """Measure and print; `--out` keeps every run."""
    parser = argparse.ArgumentParser(description=told)
    parser.add_argument(
        "--home", type=Path, default=Path(sys.prefix).parent, help="what the tests' environment.py made"
    )
    parser.add_argument("--model", type=Path, help="a folder, as tests/tiny_model.py makes it; the tests' if not given")
    parser.add_argument("--layouts", default=",".join(engine.layouts))
    parser.add_argument("--starts", type=int, default=3, help="pairs of servers in each layout")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of runs on each pair of servers")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer; 0: mixed lengths")
    parser.add_argument("--out", type=Path, help="a JSON file")
    asked = parser.parse_args()
    asked.model = asked.model or asked.home / engine.model
    kept = {}
    for name in asked.layouts.split(","):
        kept[name] = measure(engine, name, asked)
        if asked.out:
            asked.out.write_text(json.dumps(kept))


def measure(engine: Engine, layout: str, asked: argparse.Namespace) -> list[dict[str, float]]:
    """One layout: a line a start, and the sum."""
    kind = engine.layouts[layout]
    pairs: list[dict[str, float]] = []
    accounts: list[Account] = []
    for start in range(asked.starts):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            log = Path(folder) / "out.stall"
            with_it, without = (
                stack.enter_context(engine.serving(asked.model, Path(folder) / f"{name}.txt", kind, one))
                for name, one in (("with", log), ("without", None))
            )  # fmt: skip
            pairs += (new := list(alternating(engine, with_it, without, start, asked)))
            stack.close()
            accounts.append(told := account(sb.open(log)))
            handed = "" if told.frontend is None else f" ({told.frontend:.3%} of it on the frontend's thread)"
        ratio, error = mean_ratio([one["cpu_with"] / one["cpu_without"] for one in new])
        print(
            f"{layout}, start {start + 1}: own account {told.share:.3%} of the time with work{handed}, "
            f"{told.each_us:.0f} us a step of {told.each_us / told.share / 1e3:.1f} ms; "
            f"CPU ratio {ratio:.3f} +- {error:.3f}", flush=True,
        )  # fmt: skip
    shares = [one.share for one in accounts]
    print(f"{layout}: {len(pairs)} pairs, own account {statistics.mean(shares):.3%} (most {max(shares):.3%})")
    for key, name in (("cpu", f"{engine.process} CPU a token"), ("rate", "tokens a second")):
        ratio, error = mean_ratio([one[f"{key}_with"] / one[f"{key}_without"] for one in pairs])
        each = statistics.mean(one[f"{key}_without"] for one in pairs)
        unit = f"{each / 1e3:.1f} us" if key == "cpu" else f"{each:,.0f}"
        print(f"  {name}: ratio {ratio:.4f} +- {error:.4f} ({unit} without)", flush=True)
    return pairs


def alternating(
    engine: Engine, with_it: Server, without: Server, seed: int, asked: argparse.Namespace
) -> Iterator[dict[str, float]]:
    """The pairs of one pair of servers; the first, which warms up, is not counted."""
    for pair in range(asked.pairs + 1):
        asks = work(seed * 1000 + pair, asked)
        order = (with_it, without) if pair % 2 else (without, with_it)
        found = {server is with_it: one_run(engine, server, asks) for server in order}
        if pair:
            yield {
                f"{key}_{name}": found[which][key]
                for key in ("cpu", "rate")
                for which, name in ((True, "with"), (False, "without"))
            }


def work(seed: int, asked: argparse.Namespace) -> list[Ask]:
    """The requests of one pair."""
    return calm(seed, asked.requests, asked.tokens) if asked.tokens else mixed(seed, asked.requests)


def one_run(engine: Engine, server: Server, asks: list[Ask]) -> dict[str, float]:
    """Give a server work; what it took."""
    pid = server.pid("engine")
    before, start = cpu_ns(pid), time.perf_counter_ns()
    answers = engine.load(server.url, asks)
    spent, length = cpu_ns(pid) - before, time.perf_counter_ns() - start
    if wrong := [one.error for one in answers if one.error]:
        raise SystemExit(f"a request failed: {wrong[0]}")
    tokens = sum(one.tokens for one in answers)
    return {"cpu": spent / tokens, "rate": tokens / length * 1e9}


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process that are alive."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


@dataclass(frozen=True)
class Account:
    """The recorder's own account of its time in the engine core: the share of the time in which a step was under way,
    and us a step; and what of it, as a share again, the hooks of a frontend took on another thread of that process,
    where the log says.
    """

    share: float
    each_us: float
    frontend: float | None


def account(run: Run) -> Account:
    """What the recorder of a run says of itself."""
    busy, taken = busy_ns(run), run.facts.get("frontend_ns")
    books = run.facts.get("closed") or run.facts.get("recorder") or {}
    steps, spent = int((run.steps.emit != UNKNOWN).sum()), books["self_ns"]
    return Account(spent / busy, spent / steps / 1e3, None if taken is None else taken / busy)
