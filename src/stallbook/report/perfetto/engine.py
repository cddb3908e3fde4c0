"""The lanes of the engine, its device, its workers and its frontend, and the counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from stallbook.counters import waiting
from stallbook.report.perfetto.lanes import Lane, rows
from stallbook.report.perfetto.stream import Stream
from stallbook.run import CAPTURED, EAGER, Ints, Run
from stallbook.waits import BOUNDARIES

__all__ = ["write_counters", "write_deliveries", "write_engine", "write_pauses"]

_PATH: Final = {CAPTURED: "captured", EAGER: "eager"}
_STEP_ARGS: Final = ("padded", "decode_tokens", "prefill_tokens", "kv_tokens", "run_delay", "cpu")

Tick = Callable[[int], None]


def write_engine(stream: Stream, run: Run, tick: Tick) -> None:
    """Steps, host segments and device windows."""
    group = stream.track("engine", rank=1, by_rank=True, about="Every step and what ran in it.")
    _write_steps(stream, run, group)
    s = run.segments
    for rank, (device, name) in enumerate(((0, "host"), (1, "device")), 2):
        order = np.flatnonzero(s.device == device)
        order = order[np.lexsort((-s.t1[order], s.t0[order]))]
        lane = Lane(stream, name, group, rank=rank)
        table = (s.step, s.name, s.t0, s.t1, s.run_delay, s.request)
        for step, kind, t0, t1, delay, request in rows(table, order):
            args: dict[str, int | str] = {"step": int(run.steps.id[step])}
            if delay >= 0:
                args["run_delay_ns"] = delay
            if request >= 0:
                args["request"] = run.requests.names[request]
            lane.slice(t0, max(t0, t1), run.names[kind], "segment", args)
        lane.close()
        tick(len(order))


def write_pauses(stream: Stream, run: Run) -> None:
    """Garbage collections, a lane a process: the engine's, the workers', and those off the token's path."""
    pauses = run.pauses
    found = np.unique(pauses.process).tolist()
    if not found:
        return
    group = stream.track("pauses", rank=2, by_rank=True, about="Garbage collections, a lane a process.")
    for rank, process in enumerate(sorted(found, key=lambda i: run.names[i]), 1):
        order = np.flatnonzero(pauses.process == process)
        order = order[np.lexsort((-pauses.t1[order], pauses.t0[order]))]
        lane = Lane(stream, run.names[process], group, rank=rank)
        for t0, t1, generation in rows((pauses.t0, pauses.t1, pauses.generation), order):
            lane.slice(t0, t1, "gc", "pause", {"generation": generation} if generation >= 0 else {})
        lane.close()


def write_deliveries(stream: Stream, run: Run, emission: Ints, flows: Ints, tick: Tick) -> None:
    """When the frontend and the client had each token. emission: which of `Run.emissions` each delivery brought.

    flows: for each emission the number of its flow.
    """
    d = run.deliveries
    if not len(d.t):
        return
    group = stream.track("deliveries", rank=3, by_rank=True, about="When each token was further on.")
    for code, boundary in enumerate(BOUNDARIES):
        order = np.flatnonzero(d.boundary == code)
        if not len(order):
            continue
        order = order[np.argsort(d.t[order], kind="stable")]
        track = stream.lane(boundary, group, rank=code + 1, about=f"When the {boundary} had each token.")
        for request, t, tokens, brought in rows((d.request, d.t, d.tokens, emission), order):
            args = {"request": run.requests.names[request], "tokens": tokens}
            flow = int(flows[brought]) if brought >= 0 else 0
            stream.instant(track, t, "delivered", "delivery", args, flow)
        tick(len(order))


def write_counters(stream: Stream, run: Run) -> None:
    """Batch and KV tokens of each step, and the queue; what a log did not record has no track."""
    st = run.steps
    group = stream.track("counters", rank=4, by_rank=True, about="What the engine had to do.")
    told = (
        ("batch", "rows", st.decode_tokens, "Requests that decoded in a step."),
        ("KV", "tokens", st.kv_tokens, "KV tokens that a step's decode attended."),
    )
    for rank, (name, unit, values, about) in enumerate(told, 1):
        if (known := np.flatnonzero(values >= 0)).size:
            known = known[np.argsort(st.t0[known], kind="stable")]
            track = stream.counter(name, group, unit, rank=rank, about=about)
            stream.count(track, rows((st.t0, values), known))
    t, depth = waiting(run)
    if len(t):
        track = stream.counter("queue", group, "requests", rank=3, about="Arrived, not yet admitted.")
        stream.count(track, rows((t, depth), np.arange(len(t))))


def _write_steps(stream: Stream, run: Run, group: int) -> None:
    st = run.steps
    lane = Lane(stream, "steps", group, rank=1)
    amounts = [getattr(st, name) for name in _STEP_ARGS]
    order = np.lexsort((-st.t1, st.t0))
    for number, t0, t1, graph, *values in rows((st.id, st.t0, st.t1, st.graph, *amounts), order):
        args = {name: value for name, value in zip(_STEP_ARGS, values, strict=True) if value >= 0}
        name = f"{_PATH[graph]} step" if graph in _PATH else "step"
        lane.slice(t0, max(t0, t1), name, "step", {"step": number, **args})
    lane.close()
