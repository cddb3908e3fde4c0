"""The model of a vLLM run: its requests, its scheduler, what its steps cost. As `stallbook.predict.model` in all else.

A vLLM log has no probe: how fast the machine was is part of the noise, and what its plain decode steps took tells it.
vLLM freezes its heap, so collections are part of the noise, too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from stallbook.errors import StallbookError
from stallbook.predict.pace import Noise, RunPace
from stallbook.predict.ports import Request
from stallbook.predict.simulate import Setup, simulate
from stallbook.predict.speed import Series
from stallbook.predict.trail import Trail
from stallbook.predict.vllm import VllmPolicy, VllmSettings, settings_of
from stallbook.predict.vllm_costs import VllmCosts, Watched, fit_costs, noise_of, watch, without
from stallbook.predict.vllm_replay import HANDOFF, core_arrivals, gave_up, made_of, outputs_of
from stallbook.run import UNKNOWN, Ints, Run

__all__ = ["VllmEngine", "VllmModel", "fit_vllm"]

TRANSPORT: Final = 0.1
"""The quantile of the ways to the engine core that stands for an engine that looks at once."""


@dataclass(frozen=True)
class VllmEngine:
    """What simulating needs of a model."""

    settings: VllmSettings
    requests: tuple[Request, ...]
    costs: VllmCosts
    noise: Noise
    decodes: Series
    """How fast the machine was by the passes that only decode: a part of the noise."""
    speed: None = None
    heap: None = None

    def simulate(
        self, settings: VllmSettings, *, speed: Series | None = None, level: float = 1.0, draw: int | None = None
    ) -> Trail:  # fmt: skip
        """The run that these settings would have given. More: as `stallbook.predict.model.setup_of`.

        speed: how much longer than by these laws passes that only decode took over time, of another run (`speed_of`).
        """
        policy = VllmPolicy(settings)
        for one in self.requests:
            if (most := policy.most_of(one.prompt, one.max_new)) > policy.holds:
                what = f"num_gpu_blocks={settings.num_gpu_blocks} cannot hold request {one.name!r} of {most} tokens"
                raise StallbookError("bad-knob", what, f"leave at least {settings.blocks(most) + 1} blocks")
        noise = self.noise if speed is None else without(self.noise, self.decodes)
        pace = RunPace(speed, noise, level=level, draw=draw)
        return simulate(self.requests, Setup(policy, self.costs, pace))


@dataclass(frozen=True)
class VllmModel(VllmEngine):
    """Everything that was fitted from one run. notes: what had to be assumed."""

    run: Run = None  # type: ignore[assignment]
    seen: Watched = None  # type: ignore[assignment]
    notes: tuple[str, ...] = ()

    @property
    def engine(self) -> VllmEngine:
        """Without the recording: what travels to another process."""
        return VllmEngine(**{f.name: getattr(self, f.name) for f in fields(VllmEngine)})


def fit_vllm(run: Run) -> VllmModel:
    """The model of a run; StallbookError where its scheduler does not do what the log says."""
    settings = settings_of(run)
    seen = watch(run, settings)
    if not seen.replay.exact:
        first, many = seen.replay.mismatches[0], len(seen.replay.mismatches)
        what = f"step {first.step} has {first.field} {first.recorded}, vLLM's scheduler plans {first.planned}"
        what += f" (and {many - 1:,} more of {seen.replay.steps:,})" if many > 1 else ""
        remedy = "predict needs a whole log of vLLM with this scheduler, of a server that was not told to end"
        raise StallbookError("no-replay", what, remedy, run.path)
    if not len(run.steps.id):
        raise StallbookError("no-model", "has no step", "record a server at work", run.path)
    costs, decodes = fit_costs(seen)
    notes = [
        "the API server takes as long for a request, and clients ask as before: no request waits for another's end"
    ]
    requests = _requests(run, seen.origin, notes)
    noise = noise_of(seen, costs)
    return VllmModel(settings, requests, costs, noise, decodes, run=run, seen=seen, notes=tuple(notes))


def _requests(run: Run, origin: int, notes: list[str]) -> tuple[Request, ...]:
    """The workload: what each request asked, when it came in, and how much later the engine core could see it."""
    r, outputs = run.requests, outputs_of(run)
    enter = _entries(run)
    if (enter <= r.arrive).all():
        notes.append("no frontend recorded: a request counts from when the engine took it in, between two steps")
    if given_up := {key for keys in gave_up(run).values() for key in keys}:
        notes.append(f"{len(given_up)} requests were given up: each ends with the last token that it got")
        made = made_of(run)
        outputs = [max(1, int(made[i])) if i in given_up else n for i, n in enumerate(outputs)]
    keep = np.flatnonzero((r.prompt_tokens > 0) & (r.arrive != UNKNOWN)).tolist()
    return tuple(
        Request(
            r.names[i], int(r.arrive[i] - origin), int(r.prompt_tokens[i]), outputs[i],
            enter_ns=int(enter[i] - r.arrive[i]),
        )
        for i in keep
    )  # fmt: skip


def _entries(run: Run) -> Ints:
    """When each request stood at the engine core's door. The log has when it was let in, which is between two steps."""
    let_in = core_arrivals(run)
    if HANDOFF not in run.names:
        return let_in
    own = run.holds.kind == run.names.index(HANDOFF)
    request, sent, came = run.holds.request[own], run.holds.t0[own], run.holds.t1[own]
    if not len(request):
        return let_in
    way = int(np.quantile(came - sent, TRANSPORT))
    door = let_in.copy()
    door[request] = np.minimum(came, sent + way)
    return door
