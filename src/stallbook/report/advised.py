"""Advice as text, the answer in the first line and 80 columns at most, and as JSON. Both say the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from stallbook.advise import Advice, Finding, Remedy, Setting, Silence, Statement
from stallbook.advise.model import ALREADY, NOT_IN_LOG
from stallbook.report import words
from stallbook.report.jsonout import VERSION, finite
from stallbook.report.lines import facts, grid, wrapped

__all__ = ["answer", "document", "dumps", "knob", "sentence", "turned"]

INDENT: Final = "   "
NAME: Final = 9
"""Columns of the names in front of what is said of a cause."""
PREDICT: Final = "stallbook predict RUN --each"
SHOWN: Final = {"TTFT": ("TTFT p50", "TTFT p99"), "p50": ("p50",), "p99": ("p99",), "worst gap": ("worst gap",)}
"""The present figures in which a cost will show."""


def dumps(told: Sequence[Advice], form: str = "text", *, brief: bool = False) -> str:
    """The advice on one run or many."""
    if form == "json":
        return json.dumps(document(told), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    lines = list(_brief(told)) if brief or len(told) > 1 else []
    if not brief:
        for one in told:
            lines += ["", *wrapped(words.plain(one.path)), "─" * 80] if len(told) > 1 else []
            lines += _lines(one)
    return "\n".join(lines) + "\n"


def answer(a: Advice) -> str:
    """One sentence: what owns the tail, and what to do first."""
    if not a.findings:
        return "No gaps." if not a.gaps else "No cause that this log can place owns enough of the tail for advice."
    first = a.foremost or a.findings[0]
    owner = f"{words.whole(first.share)} of the tail's time is {words.name(first.cause)}"
    if first is not a.findings[0]:
        work = a.findings[0]
        owner = f"{words.whole(work.share)} of the tail's time is {words.name(work.cause)}, which is no stall; "
        owner += f"{words.whole(first.share)} is {words.name(first.cause)}"
    if first.record:
        return f"{owner}: first {first.record}."
    return f"{owner}: {turned(first.next)}." if first.next else f"{owner}."


def turned(remedy: Remedy | None) -> str:
    """A fix by its knob where it has one, else in words."""
    if remedy is None:
        return "nothing is left to set"
    return knob(remedy.settings[0]) if remedy.settings else remedy.fix.what


def knob(s: Setting) -> str:
    """Where to move a knob, and where it is now."""
    to = f" to {s.to}" if s.to and s.move != "set" else f" {s.to}" if s.to else ""
    return f"{s.move} {s.flag}{to} ({_now(s)})"


def _now(s: Setting) -> str:
    if s.present != NOT_IN_LOG:
        return f"now {_value(s.present)}"
    return f"{NOT_IN_LOG}; by default {_value(s.default)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "none"
    return "not set" if value is None else words.plain(str(value))


def sentence(s: Statement) -> str:
    """A statement with its figures in their units."""
    return s.text.format_map({key: _figure(key, value) for key, value in s.figures.items()})


def _figure(key: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return words.plain(value)
    if key.endswith("_ms"):
        return words.unit(value)
    return words.percent(value) if key.endswith("_share") else f"{value:,}"


def _lines(a: Advice) -> Iterator[str]:
    yield from wrapped(answer(a))
    yield ""
    yield from facts(list(_about(a)))
    for i, finding in enumerate(a.findings, 1):
        yield ""
        yield from _finding(a, finding, i)
    yield ""
    yield from _rest(a)


def _about(a: Advice) -> Iterator[tuple[str, str]]:
    yield "log", words.plain(a.path) + words.missing(a.notes)
    yield "engine", f"{words.plain(a.engine) or 'not named'}; {a.boundary} boundary; rules {a.rules}"
    if a.gaps:
        size = f"{a.tail_gaps:,} of {words.many(a.gaps, 'gap')}, {words.unit(a.threshold_ms)} or longer"
        yield "tail", f"{size}; p99.9 {words.unit(a.present['p999'])}"


def _finding(a: Advice, f: Finding, number: int) -> Iterator[str]:
    yield from wrapped(f"{words.plain(f.cause)}: {words.percent(f.share)} of the tail's time", f"{number}  ", INDENT)
    yield from wrapped(f.meaning, INDENT)
    for s in f.evidence:
        yield from _named(s.sense, sentence(s))
    if f.record:
        yield from _named("first", f"{f.record}: until then nothing should be changed for it")
    if f.next:
        yield from _next(a, f.next)
    yield from _named("ceiling", _ceiling(a, f))
    yield from _others(a, f)


def _named(name: str, text: str) -> list[str]:
    return wrapped(text, f"{INDENT}{name:<{NAME}}", " " * (len(INDENT) + NAME))


def _next(a: Advice, r: Remedy) -> Iterator[str]:
    where = ", or ".join(knob(s) for s in r.settings)
    unset = " (no setting of this engine)" if a.source else " (this engine's settings are not known)"
    yield from _named("fix", f"{r.fix.what}: {where}" if where else r.fix.what + unset)
    if r.fix.note:
        yield from _named("", r.fix.note)
    for cost in r.fix.costs:
        yield from _named("costs", f"{cost.where}{_present(a, cost.where)}: {cost.what}")


def _present(a: Advice, where: str) -> str:
    """The present value of the figure in which a cost will show."""
    if where == "throughput" and (rate := a.present["throughput"]) is not None:
        return f" (now {words.rate(rate)} tokens/s)"
    told = [(key, value) for key in SHOWN.get(where, ()) if (value := a.present[key]) is not None]
    text = ", ".join(f"{key.removeprefix(where).strip()} {words.unit(value)}".strip() for key, value in told)
    return f" (now {text})" if text else ""


def _ceiling(a: Advice, f: Finding) -> str:
    now, then = (a.present["p99"], a.present["p999"]), (f.p99, f.p999)
    told = [
        f"{name} {words.unit(before)} to {words.unit(after)}"
        for name, before, after in zip(("p99", "p99.9"), now, then, strict=True)
    ]
    return f"{', '.join(told)}, had this cause cost nothing and all else stayed: first order"


def _others(a: Advice, f: Finding) -> Iterator[str]:
    """What comes after, what has no knob here, and what is set already."""
    later = f.remedies[1:] if f.next else f.remedies
    without = [r.fix.what for r in later if r.state != ALREADY and not r.settings]
    for r in later:
        if r.state != ALREADY and r.settings:
            yield from _named("then", f"{r.fix.what}: {', or '.join(knob(s) for s in r.settings)}")
    if without:
        unset = " (no setting of this engine is known for it)" if a.source else ""
        yield from _named("or", "; ".join(without) + unset)
    for r in f.remedies:
        if r.state == ALREADY:
            by = r.why or f"{r.settings[0].flag}, {_now(r.settings[0])}"
            yield from _named("already", f"{r.fix.what}: {by}")


def _rest(a: Advice) -> Iterator[str]:
    """What holds for all causes: what is ruled out, what is unknown, what the words mean."""
    if a.ruled_out:
        yield from wrapped(f"Recorded, and no time in the tail: {', '.join(map(words.plain, a.ruled_out))}.")
    for s in a.silences:
        yield from wrapped(_silence(s), "", "  ")
    if a.findings:
        yield from wrapped(f"Causes with over {a.least_share:.0%} of the tail's time, the largest first.")
        if a.simulated:
            yield from wrapped(f"What each fix would buy, which is another order: {PREDICT}.")
    if a.source:
        yield from wrapped(f"Settings as in {words.plain(a.source)}.")
    elif a.gaps:
        yield from wrapped("No table of this engine's settings: fixes are named without them.")


def _silence(s: Silence) -> str:
    known = f" ({words.plain(s.known)})" if s.known else ""
    share = f", {words.percent(s.share)} of the tail as far as it can tell" if s.share else ""
    return f"Nothing is said of {words.plain(s.cause)}, {s.ability} by this log{known}{share}: to know, {s.record}."


def _brief(told: Sequence[Advice]) -> Iterator[str]:
    rows = []
    for a in told:
        name = words.plain(a.path.rstrip("/").rsplit("/", 1)[-1])
        first = a.foremost
        told_of = (words.plain(first.cause), words.percent(first.share), _short(first)) if first else ("-", "-", "-")
        rows.append((name, *told_of))
    yield from grid(("log", "cause", "of tail", "do first"), rows, (0, 1, 3))


def _short(f: Finding) -> str:
    """What to do first, in a few words."""
    if f.record or f.next is None:
        return "record more first" if f.record else "nothing is left to set"
    s = next(iter(f.next.settings), None)
    return f.next.fix.what if s is None else " ".join(part for part in (s.move, s.flag, s.to) if part)


def document(told: Iterable[Advice]) -> dict[str, Any]:
    """The advice as one JSON document."""
    return {"stallbook": VERSION, "advice": [_object(a) for a in told]}


def _object(a: Advice) -> dict[str, Any]:
    return {
        "run": {"path": a.path, "engine": a.engine, "boundary": a.boundary, "notes": dict(a.notes)},
        "rules": a.rules,
        "answer": answer(a),
        "tail": {"threshold_ms": finite(a.threshold_ms), "gaps": a.tail_gaps, "of": a.gaps},
        "present": {key.replace(" ", "_"): finite(value) for key, value in a.present.items()},
        "causes": [_cause(f) for f in a.findings],
        "unknown": [vars(s) for s in a.silences],
        "ruled_out": list(a.ruled_out),
        "settings_from": a.source or None,
        "least_share": a.least_share,
        "predict": PREDICT if a.simulated else None,
    }


def _cause(f: Finding) -> dict[str, Any]:
    evidence: dict[str, list[Mapping[str, Any]]] = {"for": [], "against": []}
    for s in f.evidence:
        figures = {key: finite(v) if isinstance(v, float) else v for key, v in s.figures.items()}
        evidence[s.sense].append({"text": sentence(s), "figures": figures})
    return {
        "cause": f.cause,
        "meaning": f.meaning,
        "ability": f.ability,
        "tail_share": f.share,
        "leads": f.leads,
        "evidence": evidence,
        "record_first": f.record or None,
        "fixes": [_fix(r) for r in f.remedies],
        "ceiling_ms": {"p99": finite(f.p99), "p999": finite(f.p999), "first_order": True},
    }


def _fix(r: Remedy) -> dict[str, Any]:
    return {
        "fix": r.fix.slug,
        "what": r.fix.what,
        "state": r.state,
        "why": r.why or None,
        "note": r.fix.note or None,
        "costs": [vars(cost) for cost in r.fix.costs],
        "settings": [
            vars(s) | {"present": None if s.present == NOT_IN_LOG else s.present, "in_log": s.present != NOT_IN_LOG}
            for s in r.settings
        ],
    }
