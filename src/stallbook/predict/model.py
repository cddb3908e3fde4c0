"""The model of a recorded run: its requests, its scheduler, what its steps cost, its machine, its heap.

`fit` makes one from a log; `simulate_with` runs it under other settings. Nothing is read from any other run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stallbook.demo.history import HEAP_OBJECTS
from stallbook.demo.limits import limits_of
from stallbook.demo.scheduler import CAPTURED
from stallbook.demo.settings import Settings
from stallbook.errors import StallbookError
from stallbook.predict.costs import DemoCosts, captured_design, fit_costs
from stallbook.predict.heap import Collector, HeapFit, fit_heap
from stallbook.predict.observed import Observed, observe, wakes
from stallbook.predict.pace import Noise, RunPace
from stallbook.predict.policy import DemoPolicy
from stallbook.predict.ports import NoHeap, Request
from stallbook.predict.simulate import Setup, simulate
from stallbook.predict.speed import Series, Waits, waits_of
from stallbook.predict.trail import Trail
from stallbook.predict.vllm import VllmSettings, is_vllm
from stallbook.predict.vllm import settings_of as vllm_settings_of
from stallbook.predict.vllm_model import VllmEngine, VllmModel, fit_vllm
from stallbook.predict.yardstick import Yardstick, yardstick_of
from stallbook.run import UNKNOWN, Run

__all__ = [
    "AnyEngine",
    "AnyModel",
    "Engine",
    "Model",
    "decode_law",
    "fit",
    "limits_of",
    "model_of",
    "recorded_settings",
    "settings_of",
    "setup_of",
    "simulate_with",
]

Floats = npt.NDArray[np.float64]

SERVER_OBJECTS: Final = 2 * HEAP_OBJECTS + 120_000
"""What the collector walks of the demonstrator's heap at its start, where a log does not tell."""
WAKE_NS: Final = 80_000
"""How late a sleeping engine wakes, where none was seen to."""
CUT_PROMPT: Final = 2048


@dataclass(frozen=True)
class Engine:
    """What simulating needs of a model. speed: None where too few plain steps tell it: then it is taken as steady.

    wake_ns: how late an engine without work sets to it.
    """

    settings: Settings
    requests: tuple[Request, ...]
    costs: DemoCosts
    heap: HeapFit | None
    speed: Series | None
    waits: Waits
    noise: Noise
    wake_ns: int = WAKE_NS

    def simulate(self, settings: Any, **more: Any) -> Trail:
        """See `simulate_with`."""
        return simulate_with(self, settings, **more)


@dataclass(frozen=True)
class Model(Engine):
    """Everything that was fitted from one run. notes: what had to be assumed."""

    run: Run = None  # type: ignore[assignment]
    seen: Observed = None  # type: ignore[assignment]
    yardstick: Yardstick = None  # type: ignore[assignment]
    notes: tuple[str, ...] = ()

    @property
    def engine(self) -> Engine:
        """Without the recording: what travels to another process."""
        return Engine(**{f.name: getattr(self, f.name) for f in fields(Engine)})


AnyEngine = Engine | VllmEngine
AnyModel = Model | VllmModel
"""What a prediction can be asked of."""


def settings_of(run: Run) -> Settings:
    """The demonstrator's settings that a log was recorded with."""
    if not run.engine.startswith("stallbook demo"):
        what = f"was recorded by {run.engine or 'an engine that it does not name'}"
        raise StallbookError("no-model", what, "predict needs a log of `stallbook demo` or of vLLM", run.path)
    known = {f.name for f in fields(Settings)}
    return Settings.from_mapping({key: value for key, value in run.config.items() if key in known})


def recorded_settings(run: Run) -> Settings | VllmSettings:
    """The settings that a log was recorded with, of whichever engine it is; what a change of them starts from."""
    return vllm_settings_of(run) if is_vllm(run) else settings_of(run)


def model_of(run: Run) -> AnyModel:
    """The model of a run, of whichever engine it is."""
    return fit_vllm(run) if is_vllm(run) else fit(run)


def fit(run: Run) -> Model:
    """The model of a run; StallbookError where its scheduler does not do what the log says."""
    settings = settings_of(run)
    seen = observe(run, DemoPolicy(limits_of(settings)))
    if not seen.replay.exact:
        first = seen.replay.mismatches[0]
        what = f"step {first.step} has {first.field} {first.recorded}, its scheduler plans {first.planned}"
        raise StallbookError("no-replay", what, "predict needs a whole log of an engine with this scheduler", run.path)
    yardstick = yardstick_of(seen)
    speed = yardstick.series(seen)
    at = {name: _speed_at(speed, table["t"]) for name, table in seen.tables.items()}
    costs = fit_costs(seen, at)
    heap = fit_heap(seen, _speed_at(speed, run.pauses.t0), SERVER_OBJECTS, frozen=settings.gc_freeze)
    notes: list[str] = []
    requests = _requests(seen, speed, notes)
    waits, noise = waits_of(run, seen.origin), _noise(seen, costs, at)
    late = wakes(run)
    return Model(
        settings, requests, costs, heap, speed, waits, noise, int(np.median(late)) if len(late) else WAKE_NS,
        run, seen, yardstick, tuple(notes),
    )  # fmt: skip


def _speed_at(speed: Series | None, t: Any) -> Floats:
    return np.ones(len(t)) if speed is None else speed.at(t)


def _requests(seen: Observed, speed: Series | None, notes: list[str]) -> tuple[Request, ...]:
    """The workload: what each request asked, and what tokenizing it took at the speed 1."""
    r = seen.run.requests
    tok = np.where(seen.tok >= 0, seen.tok / _speed_at(speed, r.arrive), np.nan)
    missing = np.isnan(tok) & (r.prompt_tokens > 0)
    if missing.any():
        tok = np.where(missing, _unseen_tok(seen, notes), tok)
    made = np.bincount(seen.run.emissions.request, minlength=len(r.names))
    out = np.where(r.max_tokens > 0, r.max_tokens, np.maximum(made, 1))
    keep = (r.prompt_tokens > 0) & (r.arrive != UNKNOWN)
    return tuple(
        Request(r.names[i], int(r.arrive[i] - seen.origin), int(r.prompt_tokens[i]), int(out[i]), float(tok[i]))
        for i in np.flatnonzero(keep).tolist()
    )


def _unseen_tok(seen: Observed, notes: list[str]) -> Floats:
    """Tokenized elsewhere: at most from arrival to admission, and at least what its tokens take at the usual rate."""
    r = seen.run.requests
    waited = np.where(r.admit != UNKNOWN, r.admit - r.arrive, 0).astype(np.float64)
    short = (r.prompt_tokens < CUT_PROMPT) & (waited > 0)
    rate = float(np.quantile(waited[short] / r.prompt_tokens[short], 0.1)) if short.any() else 0.0
    notes.append("tokenizing was not on the loop: its times are guessed from the wait for admission")
    cut = r.prompt_tokens >= CUT_PROMPT
    guessed: Floats = np.where(cut, np.maximum(waited, rate * r.prompt_tokens), rate * r.prompt_tokens)
    return guessed


def _noise(seen: Observed, costs: DemoCosts, at: Mapping[str, Floats]) -> Noise:
    """What the laws and the speed leave of each decode and each chunk."""
    d, p = seen.tables["decode"], seen.tables["prefill"]
    good, fine = d["ns"] > 0, p["ns"] > 0
    work = decode_law(d, costs)[good]
    decode = d["ns"][good] / (work * at["decode"][good])
    law = np.array([costs.prefill(a, n) for a, n in zip(p["start"].tolist(), p["tokens"].tolist(), strict=True)])
    law = law[fine] if len(law) else np.ones(0)
    chunk = p["ns"][fine] / (law * at["prefill"][fine])
    t, chunk_t = d["t"][good] - seen.origin, p["t"][fine] - seen.origin
    return Noise(t, decode, chunk_t, chunk, work, law)


def decode_law(d: Mapping[str, Any], costs: DemoCosts) -> Floats:
    """What the laws give each row of `observed`'s table of decodes, at the speed 1."""
    captured = d["graph"] == CAPTURED
    size = np.array([costs.sizes.get(n, 0.0) for n in d["padded"].tolist()])
    law = costs.laws["captured"].of(captured_design(d)) + size
    row, token = costs.laws["eager"].coefficients
    return np.asarray(np.maximum(np.where(captured, law, row * d["rows"] + token * d["kv"]), 1.0))


def setup_of(
    model: Engine, settings: Settings, *, speed: Series | None = None, waits: Waits | None = None, level: float = 1.0,
    draw: int | None = None,
) -> Setup:  # fmt: skip
    """The engine of the model with these settings. speed, waits: others than its own. level, draw: as `RunPace`."""
    costs = model.costs
    heap = model.heap
    if settings.compact_history and not model.settings.compact_history:
        costs = costs.compact()
        heap = heap.compact() if heap else None
    if heap and settings.gc_freeze and not model.settings.gc_freeze:
        heap = heap.frozen()
    pace = RunPace(speed or model.speed, model.noise, waits or model.waits, level=level, draw=draw)
    return Setup(
        DemoPolicy(limits_of(settings)), costs, pace, Collector(heap) if heap else NoHeap(),
        on_loop=settings.tokenize == "loop", wake_ns=model.wake_ns,
        stop_ns=int((settings.seconds + settings.drain_seconds) * 1e9),
    )  # fmt: skip


def simulate_with(model: Engine, settings: Settings, **more: Any) -> Trail:
    """The run that these settings would have given. more: as `setup_of`.

    Another rate brings the same requests closer together, or further apart.
    """
    requests, was, now = model.requests, model.settings.rate, settings.rate
    if was and now and was != now:
        requests = tuple(replace(r, at_ns=round(r.at_ns * was / now)) for r in requests)
    return simulate(requests, setup_of(model, settings, **more))
