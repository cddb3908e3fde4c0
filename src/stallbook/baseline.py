"""What a decode step should have cost: fitted to a run's captured steps, or given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from stallbook.run import ExplicitBaseline, Ints

__all__ = ["BaselineFit", "fit_least_squares", "fit_robust", "given", "none"]

Floats = npt.NDArray[np.float64]

MAX_POINTS: Final = 10_000
"""Steps that a robust fit looks at, evenly spaced: more do not move it."""


@dataclass(frozen=True)
class BaselineFit:
    """`B(rows, kv) = fixed_ns + row_ns * rows + kv_token_ns * kv`, and how well it is known.

    method: "explicit", "least squares", "robust", "mean" (one captured size) or "none".
    spread: median absolute deviation of M over B, as a fraction; nan where unknown.
    best: the run's best tenth of M over B: far below 1 says that the run was slow throughout.
    steps_without: steps that decoded and have no baseline: their KV tokens are not known, or B is 0 there.
    """

    method: str
    fixed_ns: float = 0.0
    row_ns: float = 0.0
    kv_token_ns: float = 0.0
    steps_used: int = 0
    spread: float = float("nan")
    best: float = float("nan")
    note: str = ""
    steps_without: int = 0

    @property
    def needs_kv(self) -> bool:
        """Whether a step without a count of KV tokens has no baseline."""
        return self.kv_token_ns != 0.0

    def at(self, rows: Ints, kv: Ints) -> Ints:
        """B in whole ns (floored); negative counts as 0. A step whose KV tokens are needed and missing gives -1."""
        value = self.fixed_ns + self.row_ns * rows + (self.kv_token_ns * kv if self.needs_kv else 0.0)
        out = np.clip(np.floor(value), 0, 2.0**52).astype(np.int64)
        if self.method == "none":
            return np.full_like(out, -1)
        return np.where((kv < 0) & self.needs_kv, -1, out)


def given(b: ExplicitBaseline) -> BaselineFit:
    """A baseline that came with the log or from the user."""
    return BaselineFit("explicit", b.fixed_ns, b.row_ns, b.kv_token_ns)


def none(note: str) -> BaselineFit:
    """No baseline: nothing is charged to `graph`, `slow` or `pad`."""
    return BaselineFit("none", note=note)


def fit_least_squares(rows: Ints, decode: Ints) -> BaselineFit:
    """The post's rule: ordinary least squares of decode time on padded size over captured steps.

    rows: padded sizes; decode: GC-free decode times, ns. Of one size alone, the least-norm line through it.
    """
    if not len(rows):
        return none("no captured step")
    x, y = rows.astype(np.float64), decode.astype(np.float64)
    mean = float(y.mean())
    dx = x - x.mean()
    square = float(dx @ dx)
    if square > 0.0:
        slope, note = float(dx @ y) / square, ""
        fixed = mean - slope * float(x.mean())
    else:
        # What the post's polyfit gives: of all lines through the point, the least one in its scaled columns.
        slope, note = (mean / (2 * x[0]) if x[0] else 0.0), "one padded size: the slope is not determined"
        fixed = mean - slope * x[0]
    fit = BaselineFit("least squares", float(fixed), float(slope), 0.0, len(rows), note=note)
    return _graded(fit, rows, np.full(len(rows), -1), decode)


def fit_robust(rows: Ints, kv: Ints, decode: Ints) -> BaselineFit:
    """The rule of `full`: a fit on padded size and KV tokens that outliers do not move.

    rows, kv (-1: not known), decode (ns): a value a step. Least absolute deviations start it (iteratively
    reweighted least squares), Tukey's bisquare with the median absolute deviation as scale finishes it
    (Huber and Ronchetti, Robust Statistics, 2nd ed., ch. 7).
    """
    if not len(rows):
        return none("no captured step")
    every = -(-len(rows) // MAX_POINTS)
    x, k, y = rows[::every], kv[::every], decode[::every].astype(np.float64)
    if len(np.unique(x)) == 1:
        fit = BaselineFit("mean", float(y.mean()), steps_used=len(y), note="one padded size: its mean at every size")
        return _graded(fit, x, k, decode[::every])
    columns = [np.ones(len(x)), x.astype(np.float64)]
    with_kv = bool((k >= 0).all()) and len(np.unique(k)) > 2 and len(x) > 3
    if with_kv:
        columns.append(k.astype(np.float64))
    design = np.stack(columns, axis=1)
    beta = _bisquare(design, y, _least_absolute(design, y))
    fit = BaselineFit("robust", float(beta[0]), float(beta[1]), float(beta[2]) if with_kv else 0.0, len(y))
    return _graded(fit, x, k, decode[::every])


def _weighted(design: Floats, y: Floats, weight: Floats) -> Floats:
    """Weighted least squares by the normal equations; their least-norm solution where they are singular."""
    scale = np.abs(design).max(axis=0)
    scale[scale == 0.0] = 1.0
    x = design / scale
    normal, right = (x * weight[:, None]).T @ x, x.T @ (weight * y)
    beta, *_ = np.linalg.lstsq(normal, right, rcond=None)
    return np.asarray(beta / scale, np.float64)


def _least_absolute(design: Floats, y: Floats) -> Floats:
    floor = max(float(np.median(np.abs(y))) * 1e-6, 1.0)
    return _settle(design, y, np.ones(len(y)), lambda rest: 1.0 / np.maximum(np.abs(rest), floor))


def _bisquare(design: Floats, y: Floats, beta: Floats) -> Floats:
    """Redescending weights: steps beyond 4.685 scales do not count at all (95% efficient at the normal).

    The scale is at least 1% of a typical step: where most steps have one size and hardly any noise, those of the
    other sizes must still count, or nothing holds the slope.
    """
    least = max(0.01 * float(np.median(np.abs(y))), 1.0)

    def weigh(rest: Floats) -> Floats:
        scale = max(1.4826 * float(np.median(np.abs(rest))), least)
        u = rest / (4.685 * scale)
        return np.where(np.abs(u) < 1.0, (1.0 - u**2) ** 2, 0.0)

    return _settle(design, y, weigh(y - design @ beta), weigh)


def _settle(design: Floats, y: Floats, weight: Floats, weigh: Callable[[Floats], Floats], rounds: int = 50) -> Floats:
    """Reweight until the fit stands still."""
    beta = _weighted(design, y, weight)
    for _ in range(rounds):
        last, beta = beta, _weighted(design, y, weigh(y - design @ beta))
        if np.allclose(last, beta, rtol=1e-7, atol=0.0):
            break
    return beta


def _graded(fit: BaselineFit, rows: Ints, kv: Ints, decode: Ints) -> BaselineFit:
    every = -(-len(rows) // MAX_POINTS)
    expected = fit.at(rows[::every], kv[::every])
    usable = expected > 0
    if not usable.any():
        return fit
    ratio = decode[::every][usable] / expected[usable]
    spread = float(np.median(np.abs(ratio - np.median(ratio))))
    return replace(fit, spread=spread, best=float(np.quantile(ratio, 0.1)))
