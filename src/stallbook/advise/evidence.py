"""The evidence for and against each cause: small functions from what was measured to statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import numpy as np

from stallbook.abilities import BOUNDED, PLACED
from stallbook.advise.measured import Lengths, Measured
from stallbook.advise.model import Statement
from stallbook.beyond import after_emission
from stallbook.causes import EXPLAINED_BY_WORK, OTHER
from stallbook.charges import SPLIT
from stallbook.run import NEVER

__all__ = ["evidence"]

FOR: Final[Literal["for"]] = "for"
AGAINST: Final[Literal["against"]] = "against"

ONE_BY_ONE: Final = frozenset({"preempt", "unscheduled", "frontend", "network"})
"""Causes that stop single requests. A hold does, too; all others stop the engine, and with it every stream."""
BY_BASELINE: Final = frozenset({"graph", "slow", "pad", "fwd"})
"""Causes that are told apart by what a decode step should cost."""
WIDE: Final = 0.15
"""A baseline from which its own steps are further off than this, in the median, is a poor one."""
FAR_BELOW: Final = 0.6
AGAIN: Final = 0.25
"""Prompts computed again beyond this part of all prefill are worth a word."""
KV, SEQS = "KV blocks", "the sequence limit"

Statements = Iterator[Statement]


def _for(text: str, **figures: Any) -> Statement:
    return Statement(FOR, text, figures)


def _against(text: str, **figures: Any) -> Statement:
    return Statement(AGAINST, text, figures)


def evidence(m: Measured, cause: str) -> tuple[Statement, ...]:
    """What speaks for and against a cause that owns part of the tail; what is for it first."""
    own = _OWN.get(cause, _other if cause.startswith(OTHER) else _segments)
    told = [*_leads(m, cause), *own(m, cause), *_streams(m, cause), *_known(m, cause)]
    if cause in BY_BASELINE:
        told += _baseline(m)
    return tuple(sorted(told, key=lambda s: s.sense == AGAINST))


def _leads(m: Measured, cause: str) -> Statements:
    led, share = m.tail.primary.get(cause, 0), m.table.mix().share.get(cause, 0.0)
    lead = "" if cause in EXPLAINED_BY_WORK else "; it leads {led} of {gaps} tail gaps"
    text = "{part_ms} of the tail's time, and {all_share} of all gaps' time" + lead
    yield _for(text, part_ms=m.tail.time_ns[cause] / 1e6, led=led, gaps=m.tail.gaps, all_share=share)


def _streams(m: Measured, cause: str) -> Statements:
    """Whether all live streams stopped at once in the worst gaps of this cause."""
    worst = [s for s in m.stalls_of(cause) if s.live > 1]
    every = sum(s.scope == "all" for s in worst)
    if not worst:
        return
    single = cause in ONE_BY_ONE or bool(m.holds(cause.removeprefix(OTHER)))
    figures = {"stalls": len(worst), "every": every, "some": len(worst) - every}
    if every:
        text = "in {every} of the {stalls} worst gaps that it leads every live stream stopped at the same instant"
        if single:
            yield _against(text + ": this cause alone stops single streams", **figures)
        else:
            yield _for(text + ": no eviction or hold does that", **figures)
    if every < len(worst):
        text = "in {some} of the {stalls} worst gaps that it leads other live streams went on"
        if single:
            yield _for(text + ": nothing that stops the whole engine does that (gc, a prefill)", **figures)
        else:
            yield _against(text + ": this cause should have stopped them", **figures)


def _known(m: Measured, cause: str) -> Statements:
    if m.p.abilities.get(cause) == BOUNDED:
        yield _against("bounded: known as a total of each step, and placed in it in proportion")


def _baseline(m: Measured) -> Statements:
    fit = m.fit
    if fit.method == "none":
        yield _against("no baseline could be fitted")
        return
    figures = {"method": fit.method, "steps": fit.steps_used, "off_share": fit.spread, "best_share": fit.best}
    if fit.method == "explicit":
        yield _for("the baseline was given, not fitted")
    else:
        text = "the baseline is a {method} fit of {steps} steps, half of them within {off_share} of it"
        yield (_against if fit.spread > WIDE else _for)(text, **figures)
    if fit.best < FAR_BELOW:
        yield _against("the best tenth of decode steps took {best_share} of the baseline: all may be slow", **figures)
    missing = [] if m.p.abilities.get("os") in (PLACED, BOUNDED) else ["run-queue delay"]
    missing += [] if fit.needs_kv or (m.p.run.steps.kv_tokens >= 0).any() else ["KV tokens"]
    if missing:
        text = "{missing} not recorded: contention or long contexts can read as this"
        yield _against(text, missing=" and ".join(missing))


def _gc(m: Measured, cause: str) -> Statements:
    c = m.counters.collections
    if c is None:
        return
    young = sum(n for generation, n in c.by_generation.items() if generation != "2")
    if full := c.gen2_serving_ms:
        text = "{full} full collections while serving, {least_ms} to {most_ms}, beside {young} of younger generations"
        yield _for(text, full=len(full), least_ms=min(full), most_ms=max(full), young=young)
    else:
        yield _against("no full collection while serving: {young} of younger generations hold it all", young=young)


def _preempt(m: Measured, cause: str) -> Statements:
    e = m.p.run.evictions
    away = (e.t1 - e.t0)[e.t1 < NEVER]
    if len(away):
        text = "{n} evictions, {median_ms} away in the median and {most_ms} at most; {again} computed again"
        figures = {"median_ms": float(np.median(away)) / 1e6, "most_ms": int(away.max()) / 1e6}
        yield _for(text, n=len(e.t0), again=int((e.recompute == 1).sum()), **figures)
    elif not len(e.t0) and "evictions" not in m.p.run.records:
        yield _against("evictions are not recorded: only the copies are in it, not what requests waited meanwhile")
    if (swap := m.segments("swap")) is not None:
        yield _for("copies out and back took {total_ms} of the engine's own time", total_ms=swap.total_ms)
    if m.blocked and (total := sum(m.blocked.values())):
        share = m.blocked.get(KV, 0.0) / total
        text = "KV blocks kept the first in the queue out for {kv_share} of the queued time"
        yield (_for if share > 0.1 else _against)(text, kv_share=share)


def _graph(m: Measured, cause: str) -> Statements:
    eager = [path for path in m.incidents.paths if path.path == "eager"]
    for path in eager:
        text = "{steps} decode steps of {fewest} to {most} rows ran above every captured size"
        figures: dict[str, Any] = {"steps": path.steps, "fewest": path.rows[0], "most": path.rows[1]}
        if path.ratio is not None:
            text += ", the usual one at {ratio} times a captured step's cost"
            figures |= {"ratio": f"{path.ratio:.1f}"}
        yield _for(text, **figures)


def _prefill(m: Measured, cause: str) -> Statements:
    if (c := m.chunks) is not None:
        text = "{steps} steps computed prompts, {median} tokens in the median and {most} at most"
        figures: dict[str, Any] = {"steps": c.steps, "median": round(c.median), "most": c.most}
        if c.token_ms:
            text += ", {token_ms} a token"
            figures |= {"token_ms": c.token_ms}
        yield _for(text, **figures)
    if m.prompts and (total := sum(m.prompts.values())):
        again = sum(ms for kind, ms in m.prompts.items() if kind.endswith("again")) / total
        if again > AGAIN:
            text = "{again_share} of it was computed before and lost to preemption: fix that first"
            yield _against(text, again_share=again)
    if m.fit.method == "none" and m.segments("prefill") is None:
        yield _against("prompts share their pass with decodes, and there is no baseline: split by their tokens")


def _tok(m: Measured, cause: str) -> Statements:
    if (s := m.segments("tok")) is not None:
        text = "{n} prompts were tokenized on the engine loop, {median_ms} in the median and {most_ms} at most"
        yield _for(text, n=s.count, median_ms=s.median_ms, most_ms=s.longest_ms)


def _os(m: Measured, cause: str) -> Statements:
    run = m.p.run
    delay = run.segments.run_delay if m.p.abilities.get("os") == PLACED else run.steps.run_delay
    some = delay[delay > 0]
    if len(some):
        text = "runnable and not running {n} times, {median_ms} in the median and {most_ms} at most, by the kernel"
        yield _for(text, n=len(some), median_ms=float(np.median(some)) / 1e6, most_ms=int(some.max()) / 1e6)
    if isinstance(cpus := m.setting("cpus"), int):
        yield _for("the machine has {cpus} CPUs", cpus=cpus)


def _slow(m: Measured, cause: str) -> Statements:
    over = m.p.ledger.charges.split[SPLIT.index("slow")]
    over = over[over > 0]
    if len(over):
        text = "{n} decodes took twice their baseline or more, {median_ms} beyond it in the median, {most_ms} at most"
        yield _for(text, n=len(over), median_ms=float(np.median(over)) / 1e6, most_ms=int(over.max()) / 1e6)


def _fwd(m: Measured, cause: str) -> Statements:
    clean, tail = (m.table.part_share("fwd", clean=c).percentile(50) for c in (True, False))
    if clean is not None and tail is not None:
        text = "{clean_share} of a clean gap and {tail_share} of a tail gap (medians): the work itself, not a stall"
        yield _against(text, clean_share=clean, tail_share=tail)


def _unscheduled(m: Measured, cause: str) -> Statements:
    st, limit = m.p.run.steps, m.setting("max_num_seqs")
    if m.largest_batch is not None and isinstance(limit, int):
        text = "the largest step decoded {rows} requests; {limit} may run at once"
        yield _for(text, rows=m.largest_batch, limit=limit)
    judged = int((m.p.run.members.known != 0).sum())
    yield _for("{steps} of {all} steps say who was in their batch", steps=judged, all=len(st.id))


def _pad(m: Measured, cause: str) -> Statements:
    rows, padding = m.padded
    if rows + padding:
        yield _for("{pad_share} of the rows that captured steps ran were padding", pad_share=padding / (rows + padding))


def _ran(told: Lengths, what: str, name: str) -> Statement:
    text = f"{{n}} {what} of {{name}}, {{median_ms}} in the median and {{most_ms}} at most, {{total_ms}} in all"
    return _for(
        text, n=told.count, name=name, median_ms=told.median_ms, most_ms=told.longest_ms, total_ms=told.total_ms
    )


def _segments(m: Measured, cause: str) -> Statements:
    if (told := m.segments(cause)) is not None:
        yield _ran(told, "segments", cause)


def _other(m: Measured, cause: str) -> Statements:
    name = cause.removeprefix(OTHER)
    for told, what in ((m.segments(name), "segments"), (m.holds(name), "holds")):
        if told is not None:
            yield _ran(told, what, name)


def _residual(m: Measured, cause: str) -> Statements:
    checked = m.p.reconcile
    yield _against("no record explains it, so no fix can be named")
    if checked.skipped_steps_unexplained:
        text = "{steps} emitting steps passed {gaps} gaps by without a record of why"
        yield _against(text, steps=checked.skipped_steps_unexplained, gaps=checked.gaps_skipping)


def _beyond(m: Measured, cause: str) -> Statements:
    if m.waits is not None:
        after = after_emission(m.waits)
        text = "in {n} gaps, {tail} of the tail's among them, the token waited mostly after emission, {most_ms} at most"
        yield _for(text, n=after.gaps, tail=after.tail_gaps, most_ms=after.longest_ns / 1e6)


_OWN: Final[dict[str, Callable[[Measured, str], Statements]]] = {
    "prefill": _prefill, "preempt": _preempt, "graph": _graph, "gc": _gc, "tok": _tok, "fwd": _fwd,
    "residual": _residual, "os": _os, "slow": _slow, "unscheduled": _unscheduled, "pad": _pad, "frontend": _beyond,
    "network": _beyond,
}  # fmt: skip
