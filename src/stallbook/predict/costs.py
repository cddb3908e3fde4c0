"""What the parts of a demonstrator's step cost, fitted to one run: the demonstrator's `Costs`.

| part | law |
|---|---|
| decode, captured | a line in padded size and KV, padded rows reading the oldest row's again; sizes may be off it |
| | and what a prompt left of the caches (`cold`) |
| decode, eager | so much a row, and the KV |
| prefill | so much a chunk and a token, one of which `PAIRS` tokens to attend to are worth; a token beyond `LARGE` |
| swap | so much a copy and a token |
| bookkeeping | before the passes, for output, and after: so much a step and a row; before them, rows may be off it |

Decode and prefill have noise of their own (`pace`), which carries what their laws leave over. The other laws are scaled
so that their steps add up to what they took.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.demo.scheduler import CAPTURED, Plan
from stallbook.predict import cold
from stallbook.predict.laws import Law, fit_law, pace_of
from stallbook.predict.observed import Observed, Table
from stallbook.predict.pace import STALL

__all__ = ["CAPTURED_TERMS", "TOKEN", "DemoCosts", "captured_design", "fit_costs"]

Floats = npt.NDArray[np.float64]

PAIRS: Final = 1600
"""Attending to so many tokens takes about as long as the products of one: 1,100 to 2,500 in 27 recorded runs whose
prompts came in chunks. A run whose prompts come whole cannot tell: there pairs grow with the square of the chunk, as
does what its products lose once they outgrow the cache, and a chunk behind others would be charged for both.
"""
TOKEN: Final = f"token or {PAIRS:,} attended to"
LARGE: Final = 1024
"""A chunk beyond this many tokens no longer fits the cache that its products run in."""
SETTLED: Final = 4.0
"""So many separate stretches of a run in which a size was seen count as much as the line through all sizes."""
STRETCH_NS: Final = 500_000_000
ROUNDS: Final = 8
PACED: Final = 0.5
"""So much of what a stretch is off the law (as a power) is put down to the machine in each round: were it all, nothing
would be left to find a law by, since a batch hardly changes within a stretch."""
CHUNKS: Final = (128, 256, 512)
"""Where one group of chunks ends and the next begins: each group costs in all what it took in all."""
CAPTURED_TERMS: Final = ("step", "row", "kv token", *cold.TERMS)
FEW: Final = 30
"""So many steps of a size, or chunks of a group, are half as good as knowing it."""
COMPACT_OUTPUT: Final = 0.45
"""What output costs with flat arrays over what it costs with objects: measured once, since no log holds both."""


@dataclass(frozen=True)
class DemoCosts:
    """See the module. laws: by part; sizes: ns of each captured size that was seen, over the line.

    plans: ns before the passes at each number of rows that was seen, over the law of `sched`. chunks: what chunks took
    over their law, by the groups of `CHUNKS`.
    """

    laws: Mapping[str, Law]
    sizes: Mapping[int, float]
    plans: Mapping[int, float] = field(default_factory=dict)
    chunks: tuple[float, ...] = (1.0,) * (len(CHUNKS) + 1)
    output_scale: float = 1.0

    @property
    def mixed(self) -> bool:
        """See `Costs`: its chunks run one by one."""
        return False

    def __post_init__(self) -> None:
        """What is asked for in every step is looked up once."""
        laws = self.laws
        put: Any = object.__setattr__
        for name in ("captured", "eager", "prefill"):
            put(self, f"_{name}", tuple(laws[name].coefficients))
        for name in ("sched", "output", "close", "swap_out", "swap_in"):
            put(self, f"_{name}", tuple(c * laws[name].bias for c in laws[name].coefficients))
        put(self, "_sizes", dict(self.sizes))
        put(self, "_plans", dict(self.plans))

    def compact(self) -> DemoCosts:
        """The same engine keeping tokens in flat arrays."""
        return replace(self, output_scale=COMPACT_OUTPUT)

    def sched(self, step: Plan) -> float:
        """See `Costs`."""
        a, b, c = self._sched  # type: ignore[attr-defined]
        rows = len(step.decodes)
        return float(a + b * rows + c * len(step.chunks) + self._plans.get(rows, 0.0))  # type: ignore[attr-defined]

    def swap_out(self, tokens: int) -> float:
        """See `Costs`."""
        a, b = self._swap_out  # type: ignore[attr-defined]
        return float(a + b * tokens)

    def swap_in(self, tokens: int) -> float:
        """See `Costs`."""
        a, b = self._swap_in  # type: ignore[attr-defined]
        return float(a + b * tokens)

    def prefill(self, start: int, tokens: int) -> float:
        """See `Costs`."""
        a, b, c = self._prefill  # type: ignore[attr-defined]
        law = a + b * tokens * (1.0 + (start + 0.5 * tokens) / PAIRS) + c * max(tokens - LARGE, 0)
        return float(law * self.chunks[bisect_left(CHUNKS, tokens)])

    def forward(self, step: Plan, kv: int, since: int) -> float:
        """See `Costs`."""
        rows = len(step.decodes)
        if step.graph == CAPTURED:
            fixed, row, token, first, after = self._captured  # type: ignore[attr-defined]
            padded = step.padded
            if padded > rows:
                kv += (padded - rows) * (step.decodes[0].computed + 1)
            ns = fixed + row * padded + token * kv + self._sizes.get(padded, 0.0)  # type: ignore[attr-defined]
            if since <= cold.STEPS:
                first_share, after_share = cold.shares(padded, since)
                ns += first * first_share + after * after_share
            return float(ns)
        row, token = self._eager  # type: ignore[attr-defined]
        return float(row * rows + token * kv)

    def output(self, tokens: int) -> float:
        """See `Costs`."""
        a, b = self._output  # type: ignore[attr-defined]
        return float((a + b * tokens) * self.output_scale)

    def close(self, step: Plan) -> float:
        """See `Costs`."""
        a, b = self._close  # type: ignore[attr-defined]
        return float(a + b * len(step.decodes))


def fit_costs(seen: Observed, speed: Mapping[str, Floats]) -> DemoCosts:
    """Fit all laws. speed: of each table, the machine's speed at each of its rows."""
    tables = seen.tables
    ns = {name: np.where(table["ns"] > 0, table["ns"] / speed[name], -1.0) for name, table in tables.items()}
    laws: dict[str, Law] = {}
    laws["captured"], sizes = _captured(tables["decode"], ns["decode"])
    laws["eager"] = _eager(tables["decode"], ns["decode"], laws["captured"], sizes)
    laws["prefill"], groups = _prefill(tables["prefill"], ns["prefill"])
    back = tables["swap"]["back"] == 1
    for name, which in (("swap_out", ~back), ("swap_in", back)):
        laws[name] = _line(tables["swap"]["tokens"][which], ns["swap"][which], ("copy", "token"))
    rows = seen.run.steps.decode_tokens
    chunks = np.bincount(tables["prefill"]["step"], minlength=len(rows)).astype(np.float64)
    decoding = rows > 0
    design = _columns(np.ones(len(rows)), rows, chunks)
    laws["sched"], plans = _sched(design[decoding], ns["sched"][decoding])
    for name in ("output", "close"):
        laws[name] = _line(rows[decoding], ns[name][decoding], ("step", "row"))
    return DemoCosts(laws, sizes, plans, groups)


def _columns(*columns: Any) -> Floats:
    return np.stack([np.asarray(c, np.float64) for c in columns], axis=1)


def _line(x: Any, ns: Floats, terms: tuple[str, str]) -> Law:
    return fit_law(terms, _columns(np.ones(len(x)), x), ns)


def _captured(table: Table, ns: Floats) -> tuple[Law, dict[int, float]]:
    """The line through all sizes and the KV, then what each size is off it, as far as it was seen often enough.

    A machine that is slow while the batch is large would pass for a steeper line, so each stretch of the run has a
    factor of its own: the line is found from what differs within stretches.
    """
    at = (table["graph"] == CAPTURED) & (ns > 0)
    padded, t, y, design = table["padded"][at], table["t"][at], ns[at], captured_design(table)[at]
    stretch = np.unique(t // STRETCH_NS, return_inverse=True)[1] if len(t) else t
    pace, sizes = np.ones(len(y)), dict[int, float]()
    over = np.zeros(len(y))
    for _ in range(ROUNDS):
        law = fit_law(CAPTURED_TERMS, design, np.maximum(y / pace - over, 1.0))
        sizes = _sizes(padded, stretch, y / pace - law.of(design))
        over = np.array([sizes[n] for n in padded.tolist()])
        pace = pace_of(stretch, y / np.maximum(law.of(design) + over, 1.0)) ** PACED
    sizes = _balanced(sizes, padded, y / pace, law.of(design))
    whole = np.maximum(law.of(design) + np.array([sizes[n] for n in padded.tolist()]), 1.0)
    ratio = y / whole if len(y) else np.ones(1)
    spread = float(np.median(np.abs(ratio - np.median(ratio))))
    return replace(law, spread=spread, bias=float(y.sum() / whole.sum()) if len(y) else 1.0), sizes


def captured_design(table: Mapping[str, Any]) -> Floats:
    """The terms of the line, a row a decode."""
    kv = table["kv"] + table["extra_kv"]
    return _columns(np.ones(len(kv)), table["padded"], kv, *cold.columns(table["padded"], table["since"]))


def _sizes(padded: Any, stretch: Any, over: Floats) -> dict[int, float]:
    found = {}
    for size in np.unique(padded).tolist():
        mine = padded == size
        seen = len(np.unique(stretch[mine]))
        found[size] = float(np.median(over[mine])) * seen / (seen + SETTLED)
    return found


def _balanced(sizes: Mapping[int, float], padded: Any, ns: Floats, line: Floats) -> dict[int, float]:
    """Each size costs in all what it took in all. What the laws leave is drawn as noise at any size, so it must not
    differ from size to size: a small batch's excess would be paid by large ones."""
    out = {}
    for size, over in sizes.items():
        mine = padded == size
        n = int(mine.sum())
        rest = float(ns[mine].mean() - line[mine].mean()) - over
        out[size] = over + rest * n / (n + FEW)
    return out


def _sched(design: Floats, ns: Floats) -> tuple[Law, dict[int, float]]:
    """What comes before the passes: its law, and what it takes over it by rows, for it is no line in them.

    Both are scaled so that all steps add up to what they took.
    """
    law = fit_law(("step", "row", "chunk"), design, ns)
    plain = (design[:, 2] == 0) & (ns > 0)
    rows, over = design[:, 1].astype(np.int64), ns - law.bias * law.of(design)
    plans = {}
    for n in np.unique(rows[plain]).tolist():
        mine = over[plain & (rows == n)]
        plans[n] = float(mine.mean()) * len(mine) / (len(mine) + FEW)
    good = ns > 0
    given = law.bias * law.of(design) + np.array([plans.get(n, 0.0) for n in rows.tolist()])
    scale = float(ns[good].sum() / given[good].sum()) if good.any() else 1.0
    return replace(law, bias=law.bias * scale), {n: over * scale for n, over in plans.items()}


def _eager(table: Table, ns: Floats, captured: Law, sizes: Mapping[int, float]) -> Law:
    """Eager steps where the run has them; else each row is a captured batch of one."""
    at = (table["graph"] != CAPTURED) & (ns > 0)
    terms = ("row", "kv token")
    if int(at.sum()) >= 8:
        return fit_law(terms, _columns(table["rows"], table["kv"])[at], ns[at])
    row = captured["step"] + captured["row"] + sizes.get(1, 0.0)
    return Law(terms, (row, captured["kv token"]), note="no eager step: each row as a captured batch of one")


def _prefill(table: Table, ns: Floats) -> tuple[Law, tuple[float, ...]]:
    """The law, and what each group of `CHUNKS` takes over it. What a chunk was held up for does not grow with it, and
    is none of its group's: it stays in the noise."""
    tokens, start = table["tokens"].astype(np.float64), table["start"]
    worth = tokens * (1.0 + (start + 0.5 * tokens) / PAIRS)
    design = _columns(np.ones(len(tokens)), worth, np.maximum(tokens - LARGE, 0.0))
    law = fit_law(("chunk", TOKEN, f"token beyond {LARGE}"), design, ns)
    given = law.of(design)
    ns, good, group = np.minimum(ns, STALL * given), ns > 0, np.searchsorted(CHUNKS, tokens)
    whole = float(ns[good].sum() / given[good].sum()) if good.any() else 1.0
    found = []
    for i in range(len(CHUNKS) + 1):
        mine = good & (group == i)
        due, n = float(given[mine].sum()), int(mine.sum())
        own = float(ns[mine].sum()) / due if due > 0 else whole
        found.append((own * n + whole * FEW) / (n + FEW))
    return law, tuple(found)
