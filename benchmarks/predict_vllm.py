"""Two knobs of a real vLLM, predicted from one log and then measured: `python benchmarks/predict_vllm.py --out FOLDER`.

In the environment of `make test-vllm`. One open-loop load, the same requests at the same times, is served by a fresh
server for each setting, setting by setting and then all of them again, so that what drifts hits all alike. From the log
of a run at the base settings the others are predicted; beside each prediction stands what was measured, and how far the
repeats of one setting are apart. A run that FOLDER holds is not made again: `--runs 2` makes two more and stops.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallbook.predict.answer import Prediction
    from stallbook.predict.outcome import Outcome
    from stallbook.predict.vllm_model import VllmModel

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "vllm")]

BASE = {"max_num_batched_tokens": 512, "num_gpu_blocks": 200}
CHANGES: tuple[dict[str, int], ...] = ({}, {"max_num_batched_tokens": 256}, {"num_gpu_blocks": 120})
FLAGS = {"max_num_batched_tokens": "--max-num-batched-tokens", "num_gpu_blocks": "--num-gpu-blocks-override"}
LENGTH = ("--max-model-len", "3424")
"""The longest request of the load, and no longer than what 120 blocks hold."""
WARM = "warm"
FIGURES = ("itl.p50", "itl.p90", "itl.p99", "ttft.p50", "preemptions")


def main() -> None:
    """Make the runs that are missing; print the table once all are there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder that keeps the logs")
    parser.add_argument(
        "--home", type=Path, default=Path(sys.prefix).parent, help="what tests/vllm/environment.py made"
    )
    parser.add_argument("--rate", type=float, default=2.5, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1000, help="at most so many runs in this call")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    missing = [(path, change) for path, change in runs(asked) if not path.exists()]
    for path, change in missing[: asked.runs]:
        began = time.monotonic()
        measure(path, BASE | change, asked)
        print(f"{path.name}: {time.monotonic() - began:.0f} s", flush=True)
    if len(missing) <= asked.runs:
        print(table([(path, change) for path, change in runs(asked)], asked.repeats))


def name_of(change: dict[str, int]) -> str:
    """A setting's name."""
    return ",".join(f"{key}={value}" for key, value in change.items()) or "base"


def runs(asked: argparse.Namespace) -> Iterator[tuple[Path, dict[str, int]]]:
    """All runs, in their order: every setting once, then every setting again."""
    for repeat in range(asked.repeats):
        for change in CHANGES:
            yield asked.out / f"{name_of(change)}-{repeat + 1}.stall", change


# Measuring


def measure(path: Path, settings: dict[str, int], asked: argparse.Namespace) -> None:
    """One server, its warm-up and the load; the log appears under its name when all went well."""
    from vllm_load import load, mixed
    from vllm_server import TWO, serving

    log = path.with_suffix(".part.stall")
    if log.exists():
        raise SystemExit(f"{log} is left over from a run that ended early: remove it")
    flags = [*LENGTH, *(word for key in BASE for word in (FLAGS[key], str(settings[key])))]
    with serving(asked.home, path.with_suffix(".txt"), TWO, log, flags=tuple(flags)) as server:
        load(server.url, mixed(asked.seed, 12, WARM))
        time.sleep(1)
        wrong = asyncio.run(offer(server.url, asked))
        if wrong:
            raise SystemExit(f"a request failed: {wrong}")
    log.replace(path)


async def offer(url: str, asked: argparse.Namespace) -> str:
    """Send each request when its time has come, whatever became of those before; the first error, if any."""
    import aiohttp
    from vllm_load import ask, mixed

    rng = Random(asked.seed)
    count = round(asked.rate * asked.seconds)
    due = sorted(rng.uniform(0, asked.seconds) for _ in range(count))
    limits = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=170)
    async with aiohttp.ClientSession(connector=limits[0], timeout=limits[1], read_bufsize=1 << 20) as session:
        start, answers = time.monotonic(), []
        for at, one in zip(due, mixed(asked.seed + 1, count), strict=True):
            await asyncio.sleep(max(0.0, start + at - time.monotonic()))
            answers.append(asyncio.create_task(ask(session, url, one)))
        return next((answer.error for answer in await asyncio.gather(*answers) if answer.error), "")


# The table


@dataclass
class Setting:
    """What became of one setting: of its runs, and of predictions of it from each base log.

    paced: predictions of each of its runs from the first base log, told how fast the machine was in that run.
    """

    measured: list[Outcome] = field(default_factory=list)
    predicted: list[Prediction] = field(default_factory=list)
    paced: list[Prediction] = field(default_factory=list)


def table(made: list[tuple[Path, dict[str, int]]], repeats: int) -> str:
    """What was predicted, what was measured, and how far apart repeats are. In Markdown."""
    from stallbook.predict.answer import base_of, predict
    from stallbook.predict.outcome import outcome
    from stallbook.predict.pool import runner
    from stallbook.predict.vllm_costs import speed_of, watch

    found = {name_of(change): Setting() for change in CHANGES}
    models = [(path, change, model(path)) for path, change in made]
    notes, first = [], models[0][2]
    for path, change, one in models:
        at = found[name_of(change)]
        at.measured.append(outcome(one.run))
        speed = speed_of(watch(one.run, one.settings), first.costs.laws)
        with runner(first.engine, workers=1) as simulate:
            at.paced += predict(base_of(first, simulate, force=True), [change], simulate, speed=speed)
        if change:
            continue
        with runner(one.engine, workers=1) as simulate:
            base = base_of(one, simulate, force=True)
            for other, prediction in zip(CHANGES, predict(base, CHANGES, simulate), strict=True):
                found[name_of(other)].predicted.append(prediction)
        off = ", ".join(f"{name} {base.misfit[name]:+.1%}" for name in FIGURES[:3])
        replay = one.seen.replay
        notes.append(
            f"{path.name}: {len(replay.mismatches)} of {replay.steps:,} steps replayed otherwise, "
            f"{replay.evictions} preemptions; the model on its own run: {off}"
        )
    lines = ["| setting | figure | first base log | other base logs | measured | off | off, at each run's speed |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [row(name, figure, one) for name, one in found.items() for figure in FIGURES]
    floor = ", ".join(f"{name} {spread([one[name] for one in found['base'].measured]):.0%}" for name in FIGURES)
    return "\n".join([*lines, "", f"The largest of {repeats} base runs is above the smallest by: {floor}.", *notes])


def model(path: Path) -> VllmModel:
    """The model of one log."""
    import stallbook as sb
    from stallbook.predict.vllm_model import fit_vllm

    return fit_vllm(sb.open(path))


def row(name: str, figure: str, at: Setting) -> str:
    """One line: the first prediction with its interval, the others, the median and range of what was measured."""
    values = [float(one[figure] or 0.0) for one in at.measured]
    middle = statistics.median(values)
    first, *others = [one.figures[figure] for one in at.predicted]
    off = [one.figures[figure].value / max(value, 1e-9) - 1 for one, value in zip(at.paced, values, strict=True)]
    cells = (
        name, figure, f"{first.value:.3g} ({first.low:.3g} to {first.high:.3g})",
        ", ".join(f"{one.value:.3g}" for one in others), f"{middle:.3g} ({min(values):.3g} to {max(values):.3g})",
        f"{first.value / max(middle, 1e-9) - 1:+.0%}", ", ".join(f"{one:+.0%}" for one in off),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def spread(values: list[float | None]) -> float:
    """How far the largest is above the smallest."""
    known = [one for one in values if one]
    return max(known) / min(known) - 1 if known else 0.0


if __name__ == "__main__":
    main()
