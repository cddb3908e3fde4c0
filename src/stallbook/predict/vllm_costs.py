"""What the parts of vLLM's steps took, and the laws of it: one pass computes all that was scheduled.

| part | from, to | law |
|---|---|---|
| sched | the end of the step before; the scheduler's end | so much a step, a row, a chunk |
| pass | the scheduler's end; the output's start | a step, a row and its KV, a chunk, its tokens, their pairs |
| output | the output's start; the end | a step, an emission |

The pass holds whatever runs in it: the runner's own work, logits, sampling, messages to a worker and back, and waits
for a core. Captured steps have a law of their own in padded tokens. A machine that was slow while prompts were long
would pass for a steeper law, so each stretch of the run has a factor of its own, and laws are found from what differs
within.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.demo.scheduler import CAPTURED, Plan
from stallbook.predict.laws import Law, fit_law, pace_of
from stallbook.predict.observed import origin_of
from stallbook.predict.pace import Noise
from stallbook.predict.replay import Replay
from stallbook.predict.speed import Series, over_time
from stallbook.predict.vllm import VllmSettings
from stallbook.predict.vllm_replay import replay_vllm
from stallbook.run import UNKNOWN, Run

__all__ = ["VllmCosts", "Watched", "fit_costs", "noise_of", "pass_law", "speed_of", "watch", "without"]

Floats = npt.NDArray[np.float64]

COLUMNS: Final = ("row", "kv token", "chunk", "token", "pair", "emitting", "padded", "graph")
PASS: Final = ("step", "row", "kv token", "chunk", "token", "pair")
CAPTURED_PASS: Final = ("step", "padded", "kv token", "pair")
STRETCH_NS: Final = 2_000_000_000
WINDOW_NS: Final = 2_000_000_000
ROUNDS: Final = 6
LEAST: Final = 8
"""Fewer steps than this are no law and no speed."""


@dataclass
class Watched:
    """A run replayed. table: a column a name of `COLUMNS`, a row a step, as the scheduler planned it; and the parts
    in ns, -1 where a step has no such end."""

    run: Run
    replay: Replay
    table: dict[str, Floats] = field(default_factory=dict)
    origin: int = 0


def watch(run: Run, settings: VllmSettings) -> Watched:
    """Replay a run and measure the parts of its steps."""
    found, rows = Replay(), []
    for at in replay_vllm(run, settings, found):
        step = at.plan
        whole = sum(c.start + c.tokens == c.seq.prompt + c.seq.generated for c in step.chunks)
        rows.append((*_work(step), len(step.decodes) + whole, step.padded, step.graph))
    columns = np.array(rows, np.float64).reshape(-1, len(COLUMNS)).T
    table = dict(zip(COLUMNS, columns, strict=True)) | {"step": np.ones(len(rows))}
    return Watched(run, found, table | _parts(run), origin_of(run))


def _work(step: Plan) -> tuple[float, float, float, float, float]:
    """Rows and their KV, chunks, their tokens and pairs."""
    rows, chunks = len(step.decodes), step.chunks
    kv = sum([seq.computed for seq in step.decodes]) + rows
    tokens = sum([c.tokens for c in chunks])
    return rows, kv, len(chunks), tokens, sum([c.tokens * (c.start + 0.5 * c.tokens) for c in chunks])


def _parts(run: Run) -> dict[str, Floats]:
    """The ends of each step's parts, and how long the parts are."""
    s, g = run.steps, run.segments
    sched, out = s.t0.copy(), np.where(s.emit == UNKNOWN, s.t1, s.emit)
    host = g.device != 1
    if "sched" in run.names:
        own = host & (g.name == run.names.index("sched"))
        np.maximum.at(sched, g.step[own], g.t1[own])
    if "output" in run.names:
        own = host & (g.name == run.names.index("output"))
        np.minimum.at(out, g.step[own], g.t0[own])
    parts = {"sched_ns": sched - s.t0, "pass_ns": out - sched, "output_ns": s.t1 - out}
    return {name: np.where(ns > 0, ns, -1).astype(np.float64) for name, ns in parts.items()}


@dataclass(frozen=True)
class VllmCosts:
    """See the module: `Costs`. laws: by part; `captured` only where the log has captured steps."""

    laws: Mapping[str, Law]

    @property
    def mixed(self) -> bool:
        """See `Costs`: one pass computes everything."""
        return True

    def __post_init__(self) -> None:
        """What is asked for in every step is looked up once."""
        for name, law in self.laws.items():
            scale = law.bias if name in ("sched", "output") else 1.0
            object.__setattr__(self, f"_{name}", tuple(c * scale for c in law.coefficients))

    def sched(self, step: Plan) -> float:
        """See `Costs`."""
        a, b, c = self._sched  # type: ignore[attr-defined]
        return float(a + b * len(step.decodes) + c * len(step.chunks))

    def swap_out(self, tokens: int) -> float:
        """See `Costs`: nothing is swapped."""
        return 0.0

    def swap_in(self, tokens: int) -> float:
        """See `Costs`: nothing is swapped."""
        return 0.0

    def prefill(self, start: int, tokens: int) -> float:
        """See `Costs`: chunks are mixed in."""
        return 0.0

    def forward(self, step: Plan, kv: int, since: int) -> float:
        """See `Costs`."""
        chunks = step.chunks
        pairs = sum([c.tokens * (c.start + 0.5 * c.tokens) for c in chunks]) if chunks else 0.0
        if step.graph == CAPTURED and "captured" in self.laws:
            fixed, padded, cached, pair = self._captured  # type: ignore[attr-defined]
            return float(fixed + padded * step.padded + cached * kv + pair * pairs)
        fixed, row, cached, chunk, token, pair = self._pass  # type: ignore[attr-defined]
        ns = fixed + row * len(step.decodes) + cached * kv
        if chunks:
            ns += chunk * len(chunks) + token * sum([c.tokens for c in chunks]) + pair * pairs
        return float(ns)

    def output(self, tokens: int) -> float:
        """See `Costs`."""
        a, b = self._output  # type: ignore[attr-defined]
        return float(a + b * tokens)

    def close(self, step: Plan) -> float:
        """See `Costs`: part of `output`."""
        return 0.0


def fit_costs(seen: Watched) -> tuple[VllmCosts, Series]:
    """All laws, and how fast the machine was over time: what its passes that only decode took over their law."""
    table = seen.table
    captured = table["graph"] == CAPTURED
    if int(captured.sum()) < LEAST:
        captured = np.zeros(len(captured), np.bool_)
    laws = {"pass": _fit(seen, PASS, ~captured)}
    if captured.any():
        laws["captured"] = _fit(seen, CAPTURED_PASS, captured)
    speed = speed_of(seen, laws)
    at = speed.at(seen.run.steps.t0)
    for name, terms in (("sched", ("step", "row", "chunk")), ("output", ("step", "emitting"))):
        ns = table[f"{name}_ns"]
        laws[name] = fit_law(terms, _design(table, terms), np.where(ns > 0, ns / at, -1.0))
    return VllmCosts(laws), speed


def pass_law(seen: Watched, laws: Mapping[str, Law]) -> Floats:
    """The law of each step's pass."""
    table = seen.table
    law = laws["pass"].of(_design(table, PASS))
    if "captured" in laws:
        law = np.where(table["graph"] == CAPTURED, laws["captured"].of(_design(table, CAPTURED_PASS)), law)
    return np.asarray(np.maximum(law, 1.0))


def speed_of(seen: Watched, laws: Mapping[str, Law]) -> Series:
    """How much longer than by these laws passes took over time: all of them within `WINDOW_NS`, over their laws.

    Of plain decodes alone: they come at all times, prompts by chance. The laws may be those of another run.
    """
    t, ns, law = seen.run.steps.t0, seen.table["pass_ns"], pass_law(seen, laws)
    plain = (ns > 0) & (seen.table["chunk"] == 0)
    if int(plain.sum()) < LEAST:
        return Series(seen.origin, np.ones(1))
    found = over_time(seen.origin, t[plain], ns[plain], law[plain], window_ns=WINDOW_NS, least=LEAST)
    return found or Series(seen.origin, np.array([ns[plain].sum() / law[plain].sum()]))


def _design(table: Mapping[str, Floats], terms: tuple[str, ...]) -> Floats:
    return np.stack([table[name] for name in terms], axis=1)


def _fit(seen: Watched, terms: tuple[str, ...], which: Any) -> Law:
    """The law of these steps' passes, found within stretches."""
    good = which & (seen.table["pass_ns"] > 0)
    design, y = _design(seen.table, terms)[good], seen.table["pass_ns"][good]
    if not len(y):
        return fit_law(terms, design, y)
    stretch = np.unique(seen.run.steps.t0[good] // STRETCH_NS, return_inverse=True)[1]
    pace = np.ones(len(y))
    for _ in range(ROUNDS):
        law = fit_law(terms, design, y / pace)
        pace = pace_of(stretch, y / np.maximum(law.of(design), 1.0))
    whole = np.maximum(law.of(design), 1.0)
    spread = float(np.median(np.abs(y / whole - np.median(y / whole))))
    return replace(law, spread=spread, bias=float(y.sum() / whole.sum()))


def noise_of(seen: Watched, costs: VllmCosts) -> Noise:
    """What the laws leave of each pass: of those that only decode, and of those with chunks in them.

    The machine's speed is in it: it is seen in nothing else.
    """
    table, ns, t0 = seen.table, seen.table["pass_ns"], seen.run.steps.t0
    work = pass_law(seen, costs.laws)
    factor = ns / work
    plain, mixed = (ns > 0) & (table["chunk"] == 0), (ns > 0) & (table["chunk"] > 0)
    t = t0 - seen.origin
    return Noise(t[plain], factor[plain], t[mixed], factor[mixed], work[plain], work[mixed])


def without(noise: Noise, speed: Series) -> Noise:
    """The noise that is left once this speed is known."""
    plain, mixed = (speed.at(t + speed.origin) for t in (noise.t, noise.chunk_t))
    return replace(noise, factor=noise.factor / plain, chunk_factor=noise.chunk_factor / mixed)
