"""A law: what a part of a step takes, as a sum of terms that are none of them negative, fitted to what was seen.

Noise on a duration is a factor, so errors are counted relative to the law; and a few contended steps are far out, so
Tukey's bisquare weighs them down. The law is then scaled so that its steps add up to what they took: what the tail of
a run holds must not be lost, only kept from bending the law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Law", "fit_law", "medians", "pace_of"]

Floats = npt.NDArray[np.float64]

CUT: Final = 4.685
ROUNDS: Final = 30


@dataclass(frozen=True)
class Law:
    """ns = sum(coefficient * term). rows: how many were seen. spread: median deviation from the law, as a fraction.

    bias: what the rows took in all, over what the law gives them.
    """

    terms: tuple[str, ...]
    coefficients: tuple[float, ...]
    rows: int = 0
    spread: float = float("nan")
    bias: float = 1.0
    note: str = field(default="", compare=False)

    def of(self, design: Floats) -> Floats:
        """The law at many rows: a column a term."""
        return np.asarray(design @ np.array(self.coefficients, np.float64))

    def __getitem__(self, term: str) -> float:
        return self.coefficients[self.terms.index(term)] if term in self.terms else 0.0


def fit_law(terms: Sequence[str], design: Floats, ns: Any, note: str = "") -> Law:
    """The law of these terms; those that would be negative are left at 0."""
    y = np.asarray(ns, np.float64)
    good = y > 0
    design, y = design[good], y[good]
    if not len(y):
        return Law(tuple(terms), (0.0,) * len(terms), 0, note=note or "never seen")
    beta = np.zeros(len(terms))
    used = [i for i in range(len(terms)) if design[:, i].any()]
    while used:
        found = _settle(design[:, used], y)
        if (found >= 0).all():
            beta[used] = found
            break
        used.pop(int(np.argmin(found * np.abs(design[:, used]).mean(axis=0))))
    expected = np.maximum(design @ beta, 1.0)
    ratio = y / expected
    spread = float(np.median(np.abs(ratio - np.median(ratio))))
    return Law(tuple(terms), tuple(beta.tolist()), len(y), spread, float(y.sum() / expected.sum()), note)


def medians(group: Any, values: Floats) -> Floats:
    """The median of each group. group: of each value the number of its group, each from 0 on occurring."""
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 2)).tolist()
    return np.array([np.median(values[order[a:b]]) for a, b in pairwise(bounds)])


def pace_of(stretch: Any, ratio: Floats) -> Floats:
    """How slow each stretch of a run was, at each of its steps; 1 over all. ratio: what each took over its law."""
    factors = medians(stretch, ratio)
    if not len(factors):
        return np.ones(0)
    return np.asarray((factors / np.exp(np.log(factors).mean()))[stretch])


def _settle(design: Floats, y: Floats) -> Floats:
    """Reweighted least squares on relative errors, until it stands still."""
    floor = 0.05 * float(np.median(y))
    weight = 1.0 / np.maximum(y, floor)
    beta = _weighted(design, y, weight)
    for _ in range(ROUNDS):
        expected = np.maximum(design @ beta, floor)
        rest = (y - design @ beta) / expected
        scale = max(1.4826 * float(np.median(np.abs(rest))), 0.003)
        u = rest / (CUT * scale)
        weight = np.where(np.abs(u) < 1.0, 1.0 - u**2, 0.0) / expected
        last, beta = beta, _weighted(design, y, weight)
        if np.allclose(last, beta, rtol=1e-6, atol=0.0):
            break
    return beta


def _weighted(design: Floats, y: Floats, weight: Floats) -> Floats:
    """Least squares with each row times its weight; columns are scaled first."""
    scale = np.abs(design).max(axis=0)
    scale[scale == 0.0] = 1.0
    beta, *_ = np.linalg.lstsq(design / scale * weight[:, None], y * weight, rcond=None)
    return np.asarray(beta / scale, np.float64)
