"""Two knobs of a real vLLM, predicted from one log and then measured: `python benchmarks/predict_vllm.py --out FOLDER`.

In the environment of `make test-vllm`. One open-loop load, the same requests at the same times, is served by a fresh
server for each setting, setting by setting and then all of them again, so that what drifts hits all alike. From the log
of a run at the base settings the others are predicted; beside each prediction stands what was measured, how far the
repeats of one setting are apart, and what is off once the machine's speed in the measured run is known. A run that
FOLDER holds is not made again: `--runs 2` makes two more and stops.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

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
FIGURES = ("itl.p50", "itl.p90", "itl.p99", "ttft.p50", "ttft.p99", "tokens_per_s", "preemptions")


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

    leveled, paced: by run, what each other base log says of it, told how fast the machine was in that run: on the
    whole, and over time.
    """

    measured: list[Outcome] = field(default_factory=list)
    predicted: list[Prediction] = field(default_factory=list)
    leveled: list[list[Outcome]] = field(default_factory=list)
    paced: list[list[Outcome]] = field(default_factory=list)


def table(made: list[tuple[Path, dict[str, int]]], repeats: int) -> str:
    """What was predicted, what was measured, and how far apart repeats are. In Markdown."""
    from stallbook.predict.answer import base_of, predict
    from stallbook.predict.outcome import outcome
    from stallbook.predict.pool import runner
    from stallbook.predict.vllm_costs import speed_of

    found = {name_of(change): Setting() for change in CHANGES}
    models = [(path, change, model(path)) for path, change in made]
    bases = [one for _, change, one in models if not change]
    notes = []
    for path, change, one in models:
        at = found[name_of(change)]
        at.measured.append(outcome(one.run))
        others = [base for base in bases if base is not one]
        at.leveled.append([said(base, change, level=relative(base, one)) for base in others])
        at.paced.append([said(base, change, speed=speed_of(one.seen, base.costs.laws)) for base in others])
        replay = one.seen.replay
        note = (
            f"{path.name}: {len(replay.mismatches)} of {replay.steps:,} steps replayed otherwise, "
            f"{replay.evictions} preemptions; speed {relative(bases[0], one):.2f} of the first base run's"
        )
        if not change:
            with runner(one.engine, workers=1) as simulate:
                base = base_of(one, simulate, force=True)
                for other, prediction in zip(CHANGES, predict(base, CHANGES, simulate), strict=True):
                    found[name_of(other)].predicted.append(prediction)
            off = ", ".join(f"{name} {base.misfit[name]:+.1%}" for name in FIGURES[:3])
            note += f"; the model on its own run: {off}"
        notes.append(f"- {note}")
    head = (
        "setting", "figure", "predicted", "from other base logs", "measured", "off", "off, at the run's level",
        "off, at its speed",
    )  # fmt: skip
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [row(name, figure, one) for name, one in found.items() for figure in FIGURES]
    floor = ", ".join(f"{name} {spread([one[name] for one in found['base'].measured]):.0%}" for name in FIGURES)
    return "\n".join([*lines, "", f"The largest of {repeats} base runs is above the smallest by: {floor}.", "", *notes])


def said(base: VllmModel, change: dict[str, int], **machine: Any) -> Outcome:
    """What a base log says of a run with this change. machine: its speed in that run, as `VllmEngine.simulate`."""
    from stallbook.predict.outcome import brief

    return brief(base.simulate(replace(base.settings, **change), **machine))


def relative(base: VllmModel, run: VllmModel) -> float:
    """How much longer than in the base run its passes that only decode took, by the base run's laws."""
    from stallbook.predict.vllm_costs import pass_law

    def taken(one: VllmModel) -> float:
        ns, plain = one.seen.table["pass_ns"], one.seen.table["chunk"] == 0
        plain &= ns > 0
        return float(ns[plain].sum() / pass_law(one.seen, base.costs.laws)[plain].sum())

    return taken(run) / taken(base)


def model(path: Path) -> VllmModel:
    """The model of one log."""
    import stallbook as sb
    from stallbook.predict.vllm_model import fit_vllm

    return fit_vllm(sb.open(path))


def row(name: str, figure: str, at: Setting) -> str:
    """One line: the first prediction with its interval, the others, the median and range of what was measured.

    off: the median of the predictions from the median of what was measured. At the run's level or speed: the median
    over all pairs of a base log and another run, and the lowest and highest of them.
    """
    values = [float(one[figure] or 0.0) for one in at.measured]
    middle = statistics.median(values)
    first, *others = [one.figures[figure] for one in at.predicted]
    said = statistics.median(one.figures[figure].value for one in at.predicted)
    cells = (
        name, figure, f"{first.value:.3g} ({first.low:.3g} to {first.high:.3g})",
        ", ".join(f"{one.value:.3g}" for one in others), f"{middle:.3g} ({min(values):.3g} to {max(values):.3g})",
        f"{said / max(middle, 1e-9) - 1:+.0%}", *(pairs(figure, values, told) for told in (at.leveled, at.paced)),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def pairs(figure: str, values: list[float], told: list[list[Outcome]]) -> str:
    """How far predictions of single runs are off: the median, and the range."""
    every = zip(values, told, strict=True)
    off = [float(one[figure] or 0.0) / max(value, 1e-9) - 1 for value, said in every for one in said]
    return f"{statistics.median(off):+.0%} ({min(off):+.0%} to {max(off):+.0%})" if off else ""


def spread(values: list[float | None]) -> float:
    """How far the largest is above the smallest."""
    known = [one for one in values if one]
    return max(known) / min(known) - 1 if known else 0.0


if __name__ == "__main__":
    main()
