"""Scores as text of 80 columns and as a JSON object. Derives nothing but percentiles and ranges."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from stallbook.inject.score import CauseScore, Score

__all__ = ["to_object", "to_text"]

WIDTH = 80
SHOWN = 12


def to_object(scores: Mapping[int, Score], unavailable: Mapping[str, str], failed: Mapping[str, int]) -> dict[str, Any]:
    """`scores` by seed. Counts are added over seeds before anything is divided; ranges are over seeds.

    A range that lacks a seed would pass for one over all: there is none then.
    """
    whole = reduce(add, scores.values())
    causes = {cause: _cause(cause, one, list(scores.values())) for cause, one in whole.causes.items()}
    worst = min((c for c in causes if causes[c]["f1"] is not None), key=lambda c: causes[c]["f1"], default=None)
    return {
        "macro_f1": whole.macro_f1,
        "macro_f1_range": _range([score.macro_f1 for score in scores.values()]),
        "unjudged": list(whole.unjudged),
        "worst": None if worst is None else {"cause": worst, "f1": causes[worst]["f1"]},
        "causes": causes,
        "seeds": list(scores),
        "calm": {"gaps": whole.calm, "alarms": whole.alarms},
        "left_out": whole.left_out,
        "reconciled": whole.reconciled,
        "unavailable": dict(unavailable),
        "failed": dict(failed),
        "misattributed": [
            {"seed": seed, **asdict(miss)} for seed, score in scores.items() for miss in score.misses
        ],
    }  # fmt: skip


def _cause(cause: str, one: CauseScore, seeds: Sequence[Score]) -> dict[str, Any]:
    there = [score.causes[cause] for score in seeds if cause in score.causes]
    return {
        "faults": one.faults,
        "gaps": one.true_positive + one.false_negative,
        "precision": one.precision,
        "recall": one.recall,
        "f1": one.f1,
        "f1_range": _range([each.f1 for each in there]),
        "time_error_median": _percentile(one, 50),
        "time_error_p95": _percentile(one, 95),
        "time_error_median_range": _range([_percentile(each, 50) for each in there]),
        "time_error_p95_range": _range([_percentile(each, 95) for each in there]),
    }


def _percentile(one: CauseScore, q: float) -> float | None:
    return float(np.percentile(one.errors, q)) if len(one.errors) else None


def _range(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known and len(known) == len(values) else None


def to_text(told: Mapping[str, Any]) -> str:
    """What a terminal shows."""
    seeds = told["seeds"]
    spread = "min over seeds" if len(seeds) > 1 else ""
    lines = [
        f"Planted faults, scored over {len(seeds)} seed{'s' * (len(seeds) > 1)}",
        "",
        f"{'':16}{'':>7}{'':>8}{'':>11}{'':>8}{'':>16}{'error of the':>14}",
        f"{'':16}{'':>7}{'':>8}{'':>11}{'':>8}{'F1':>7}{'':>9}{'charged time':>14}",
        f"{'cause':16}{'faults':>7}{'gaps':>8}{'precision':>11}{'recall':>8}{'all':>7}{'lowest':>9}{'p50':>7}{'p95':>7}",
    ]
    lines += [_line(cause, one) for cause, one in told["causes"].items()]
    low = told["macro_f1_range"][0] if told["macro_f1_range"] else None
    lowest = f", {_fraction(low)} at the lowest seed" if spread else ""
    lines += ["", f"Macro F1 {_fraction(told['macro_f1'])}{lowest}."]
    if told["worst"]:
        lines[-1] += f" Worst: {told['worst']['cause']}, {_fraction(told['worst']['f1'])}."
    return "\n".join([*lines, *_below(told)]) + "\n"


def _line(cause: str, one: Mapping[str, Any]) -> str:
    low = one["f1_range"][0] if one["f1_range"] else None
    errors = "".join(f"{_percent(one[f'time_error_{which}']):>7}" for which in ("median", "p95"))
    shown = (
        f"{_fraction(one['precision']):>11}{_fraction(one['recall']):>8}{_fraction(one['f1']):>7}{_fraction(low):>9}"
    )
    return f"{cause[:15]:16}{one['faults']:>7,}{one['gaps']:>8,}{shown}{errors}"


def _below(told: Mapping[str, Any]) -> list[str]:
    calm, out = told["calm"], told["left_out"]
    alarms = ", ".join(f"{cause} {count:,}" for cause, count in calm["alarms"].items()) or "none"
    unjudged = ", ".join(told["unjudged"])
    lines = [f"No gap could be judged of: {unjudged}; so there is no macro F1."] if unjudged else []
    lines += [
        f"Calm gaps: {calm['gaps']:,}; told a cause: {alarms}.",
        "Left out: " + ", ".join(f"{count:,} {reason}" for reason, count in out.items()) + ".",
    ]
    if not told["reconciled"]:
        lines.append("The parts do not add up to the gaps: this is a fault of stallbook.")
    lines += [f"Not available here: {kind} ({why})." for kind, why in told["unavailable"].items()]
    lines += [f"Could not be planted: {count} of {kind}." for kind, count in told["failed"].items()]
    lines = [part for line in lines for part in textwrap.wrap(line, WIDTH, break_on_hyphens=False)]
    misses = told["misattributed"]
    if misses:
        lines += ["", "Told wrongly, the first of them:"]
        lines += [_miss(miss) for miss in misses[:SHOWN]]
    return lines


def _miss(miss: Mapping[str, Any]) -> str:
    planted = f"{miss['planted_ns'] / 1e6:.2f} of " if miss["planted_ns"] else ""
    text = f"seed {miss['seed']} step {miss['step']}: {planted}{miss['gap_ns'] / 1e6:.2f} ms, "
    return f"  {text}{miss['right']} told as {miss['told']}"[:WIDTH]


def _fraction(value: float | None) -> str:
    """Never rounds up to a whole 1."""
    return "-" if value is None else f"{math.floor(value * 1000) / 1000:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}" if value < 9.995 else ">999%"
