"""Predictions as text, 80 columns at most, and as JSON. What the model misses of its own run comes first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stallbook.predict.answer import LEVEL, Base, Figure, Prediction
from stallbook.predict.knobs import written
from stallbook.predict.laws import Law
from stallbook.predict.search import Found, Stage
from stallbook.report import words
from stallbook.report.jsonout import VERSION, finite
from stallbook.report.lines import facts, grid, wrapped

__all__ = ["Told", "answer", "document", "dumps", "figure_text"]

SHOWN: Final = (
    "itl.p50", "itl.p90", "itl.p99", "itl.p99.9", "itl.max", "ttft.p50", "ttft.p99", "tokens_per_s", "preemptions",
    "eager_steps",
)  # fmt: skip
COUNTS: Final = ("preemptions", "eager_steps")
LABEL: Final = {"tokens_per_s": "tokens/s", "eager_steps": "eager steps"}
_STAGE: Final = ("itl.p50", "itl.p99", "itl.p99.9", "ttft.p50", "tokens_per_s")
INTERVAL: Final = f"{LEVEL:.0%} interval"


@dataclass(frozen=True)
class Told:
    """What one call of `predict` is to say. by: the figure that the fixes are ordered by."""

    base: Base
    predictions: Sequence[Prediction]
    order: Sequence[Stage] | None = None
    by: str = "itl.p99.9"
    found: Found | None = None
    forced: bool = False


def dumps(told: Told, form: str) -> str:
    """All of it, as text or as JSON."""
    if form == "json":
        return json.dumps(document(told), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    return "\n".join(_lines(told)) + "\n"


def answer(told: Told) -> str:
    """One sentence: what the change gives."""
    if told.found is not None:
        return _found_answer(told.found)
    if not told.predictions:
        return "Every fix that is known here is made already."
    best = min(told.predictions, key=lambda p: p.figures[told.by].value if told.by in p.figures else float("inf"))
    if told.order is None:
        best = told.predictions[0]
    now, then = told.base.measured[told.by], best.figures.get(told.by)
    if then is None or now is None:
        return f"{best.name}: nothing can be said of {told.by}."
    which = "The best single fix is " if told.order is not None else ""
    return (
        f"{which}{best.name}: {told.by} from {figure_text(told.by, now)} to {figure_text(told.by, then.value)} "
        f"({_between(told.by, then)}), predicted."
    )


def _found_answer(found: Found) -> str:
    if found.best is None:
        return f"None of {len(found.seen)} settings gives {found.goal}."
    stage = found.seen[found.best]
    price = figure_text(found.trade, stage.outcome[found.trade])
    own = found.seen[0]
    met = ""
    if found.goal.met(own.outcome[found.goal.name]):
        who = f"{written(own.change)} alone" if own.change else "As recorded it"
        met = f"{who} gives {found.goal} already, at {found.trade} {figure_text(found.trade, own.outcome[found.trade])}"
        if stage.change == own.change:
            return f"{met}: none of {len(found.seen)} settings gives that at less."
        met += ". "
    told = f"{written(stage.change)} gives {found.goal} at the least {found.trade}, {price}"
    return f"{met}{told}: of {len(found.seen)} settings."


def figure_text(name: str, value: float | None) -> str:
    """A figure with its unit."""
    if value is None:
        return "-"
    if name in COUNTS:
        return f"{value:,.0f}"
    return f"{words.rate(value)} tokens/s" if name == "tokens_per_s" else words.unit(value)


def _short(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name in COUNTS:
        return f"{value:,.0f}"
    return words.rate(value) if name == "tokens_per_s" else words.ms(value)


def _between(name: str, f: Figure) -> str:
    return f"{_short(name, f.low)} to {_short(name, f.high)}"


def _lines(told: Told) -> Iterator[str]:
    yield from wrapped(answer(told))
    yield ""
    yield from facts(list(_about(told)))
    if told.found is not None:
        yield from _found(told.found)
    if told.order is not None:
        yield from _each(told)
    elif told.predictions:
        for one in told.predictions:
            yield from _one(told.base, one)
    yield from _fit(told.base)
    yield from _assumes(told)


def _about(told: Told) -> Iterator[tuple[str, str]]:
    base = told.base
    run = base.model.run
    yield "log", words.plain(run.path) + words.missing(run.notes)
    own = ", ".join(
        f"{name.removeprefix('itl.')} {base.misfit[name]:+.1%}" for name in SHOWN[:4] if name in base.misfit
    )
    yield "own run", f"the model gives it back with {own}" + ("; FORCED" if told.forced and base.refusal else "")
    speed = base.model.speed
    held = f"by its bookkeeping its speed moved by {speed.moved:.0%}; " if speed else "its speed was not told; "
    held += f"its level drifts by {base.drift:.1%} from third to third of the run"
    yield (
        "machine",
        held + (f"; that of a repeat is taken to be {base.apart:.1%} off" if base.apart > base.drift else ""),
    )
    yield "replayed", f"{words.many(base.model.seen.replay.steps, 'step')} by the same scheduler, none otherwise"


def _one(base: Base, p: Prediction) -> Iterator[str]:
    yield ""
    yield from wrapped(p.name)
    rows = []
    for name in SHOWN:
        f = p.figures.get(name)
        if f is None:
            continue
        ceiling = (p.ceiling or {}).get(name)
        rows.append((
            LABEL.get(name, name), _short(name, base.measured[name]), _short(name, base.own[name]),
            _short(name, f.value), _between(name, f), _short(name, ceiling) if ceiling is not None else "",
        ))  # fmt: skip
    yield from grid(("ms", "recorded", "modelled", "predicted", INTERVAL, "ceiling"), rows)
    yield from _tail(base, p)


def _tail(base: Base, p: Prediction) -> Iterator[str]:
    if p.share:
        yield from wrapped(f"tail recorded: {words.shares(dict(base.measured.share), 5)}", "  ", "    ")
        yield from wrapped(f"tail predicted: {words.shares(dict(p.share), 5)}", "  ", "    ")


def _each(told: Told) -> Iterator[str]:
    yield ""
    yield "Every single fix (ms)"
    rows = [("as recorded", *(_short(n, told.base.measured[n]) for n in ("itl.p99", "itl.p99.9")), "", "",
             *(_short(n, told.base.measured[n]) for n in ("ttft.p50", "tokens_per_s")))]  # fmt: skip
    ranked = sorted(told.predictions, key=lambda p: p.figures[told.by].value if told.by in p.figures else float("inf"))
    for p in ranked:
        f = p.figures
        ceiling = (p.ceiling or {}).get("itl.p99.9")
        rows.append((
            p.name, *(_short(n, f[n].value) for n in ("itl.p99", "itl.p99.9")), _between("itl.p99.9", f["itl.p99.9"]),
            _short("itl.p99.9", ceiling), *(_short(n, f[n].value) for n in ("ttft.p50", "tokens_per_s")),
        ))  # fmt: skip
    yield from grid(("change", "p99", "p99.9", INTERVAL, "ceiling", "TTFT", "tok/s"), rows)
    yield ""
    yield f"Best order by {told.by}, each on top of those before (one simulation each)"
    if not told.order:
        yield "  no fix takes 2% off it"
        return
    stages, before = [], dict[str, Any]()
    for stage in told.order:
        new = {name: value for name, value in stage.change.items() if name not in before}
        before = dict(stage.change)
        stages.append((f"+ {written(new)}", *(_short(n, stage.outcome[n]) for n in _STAGE)))
    start = ("as modelled", *(_short(n, told.base.own[n]) for n in _STAGE))
    yield from grid(("fix", "p50", "p99", "p99.9", "TTFT p50", "tok/s"), [start, *stages])


def _found(found: Found) -> Iterator[str]:
    yield ""
    yield from wrapped(
        f"The front: no setting that was tried is better both in {found.goal.name} and in {found.trade} (one "
        "simulation each)"
    )
    for i in found.front:
        stage = found.seen[i]
        mark = "*" if i == found.best else " "
        told = [f"{n} {_short(n, stage.outcome[n])}" for n in dict.fromkeys((found.goal.name, found.trade, "itl.p99"))]
        rate = figure_text("tokens_per_s", stage.outcome["tokens_per_s"])
        yield f"{mark} {'  '.join(told)}  {rate}"
        yield from wrapped(written(stage.change), "    ", "    ")


def _fit(base: Base) -> Iterator[str]:
    yield ""
    yield "What its steps cost, fitted to this run at its own speed"
    costs = base.model.costs
    rows = [(name, f"{law.rows:,}", words.whole(law.spread) if law.rows else "-", _law(law))
            for name, law in costs.laws.items()]  # fmt: skip
    yield from grid(("part", "seen", "off by", "law"), rows, (0, 3))
    if (heap := base.model.heap) is not None:
        text = (
            f"collections: {heap.collections:,}, {heap.full} of them full; {heap.token_objects:.1f} objects a token, "
            f"{heap.step_objects:.1f} a step; {heap.live:,.0f} at the start; {heap.object_ns:.0f} ns an object of a "
            "full one"
        )
        yield from wrapped(text, "  ", "    ")


def _law(law: Law) -> str:
    terms = [f"{_ns(c)}/{t}" for t, c in zip(law.terms, law.coefficients, strict=True) if c]
    return " + ".join(terms) or law.note or "0"


def _ns(ns: float) -> str:
    for limit, unit in ((1e6, "ms"), (1e3, "us")):
        if ns >= limit:
            return f"{ns / limit:.3g} {unit}"
    return f"{ns:.3g} ns"


def _assumes(told: Told) -> Iterator[str]:
    every = dict.fromkeys(a for p in told.predictions for a in p.assumptions)
    if not every:
        every = dict.fromkeys(["the same requests at the same times, on this machine at the speed of this run"])
    yield ""
    yield "Assumes"
    for one in every:
        yield from wrapped(one, "  - ", "    ")
    text = "Not predicted: a single worst gap, work of other processes, drift of the host."
    if any(p.ceiling for p in told.predictions):
        text += " Ceiling: the recorded gaps without the causes of the change, to a first order."
    yield from wrapped(text)


def document(told: Told) -> dict[str, Any]:
    """All of it as one JSON document."""
    base, run = told.base, told.base.model.run
    speed = base.model.speed
    return {
        "stallbook": VERSION,
        "predict": {
            "run": {"path": run.path, "engine": run.engine, "config": dict(run.config),
                    "notes": dict(run.notes)},
            "answer": answer(told),
            "recorded": _values(base.measured.values),
            "modelled": _values(base.own.values),
            "misfit": _values(base.misfit),
            "refusal": base.refusal or None,
            "machine": {
                "moved": speed.moved if speed else None, "drift": base.drift, "apart": base.apart,
            },
            "interval": LEVEL,
            "replayed_steps": base.model.seen.replay.steps,
            "fit": {name: _law_object(law) for name, law in base.model.costs.laws.items()},
            "heap": vars(base.model.heap) if base.model.heap else None,
            "predictions": [_prediction(p) for p in told.predictions],
            "order": None if told.order is None else [_stage(s) for s in told.order],
            "search": None if told.found is None else _search(told.found),
        },
    }  # fmt: skip


def _values(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: finite(value) for name, value in values.items()}


def _law_object(law: Law) -> dict[str, Any]:
    terms = dict(zip(law.terms, law.coefficients, strict=True))
    return {"terms_ns": terms, "seen": law.rows, "spread": finite(law.spread), "note": law.note or None}


def _prediction(p: Prediction) -> dict[str, Any]:
    return {
        "set": dict(p.change), "figures": {name: vars(f) for name, f in p.figures.items()},
        "tail_share": dict(p.share), "ceiling": dict(p.ceiling) if p.ceiling else None,
        "assumptions": list(p.assumptions),
    }  # fmt: skip


def _stage(stage: Stage) -> dict[str, Any]:
    return {"set": dict(stage.change), "figures": _values(stage.outcome.values)}


def _search(found: Found) -> dict[str, Any]:
    return {
        "goal": str(found.goal), "trade": found.trade, "best": found.best, "front": list(found.front),
        "settings": [_stage(s) for s in found.seen],
    }  # fmt: skip
