"""The answer in one sentence, and what would move the tail: for where there is room for no more."""

from __future__ import annotations

from collections.abc import Iterator

from stallbook.report import words
from stallbook.report.model import RunReport
from stallbook.report.text import answer, meaning

__all__ = ["headline", "support"]

LEAST = 0.05
"""A share below this is not told, nor a ceiling that is less than this below the percentile."""


def headline(r: RunReport) -> str:
    """Which cause owns the tail, and what the p99 would be without it."""
    top = owner(r)
    ceiling = r.ceiling.get(top) if top else None
    if not top or not ceiling or top in ("fwd", "residual"):
        return answer(r)
    owned = f"{words.whole(r.tail.share[top])} of the tail's time is {words.name(top)}"
    now, then = words.unit(r.itl.p99), words.unit(ceiling.p99)
    if now == then:
        return f"{owned}; p99 is {now}, with or without it."
    return f"{owned}; p99 is {now}, and would be {then} without it."


def owner(r: RunReport) -> str | None:
    """The cause that holds most of the tail's time."""
    share = r.tail.share
    return max(share, key=lambda c: share[c]) if share else None


def support(r: RunReport) -> Iterator[str]:
    """What the owner is, who comes next, and which cause weighs most on each percentile."""
    top = owner(r)
    if not top:
        return
    yield f"{words.plain(top)}: {meaning(top)}."
    share = r.tail.share
    after = sorted((c for c in share if c != top and share[c] >= LEAST), key=lambda c: -share[c])[:3]
    if after:
        yield f"Next: {', '.join(f'{words.name(c)} {words.whole(share[c])}' for c in after)}."
    if levers := [lever for name in ("p99", "p999") if (lever := _lever(r, name))]:
        yield f"At best, to a first order: {'; '.join(levers)}."


def _lever(r: RunReport, percentile: str) -> str:
    """The cause without which a percentile would fall furthest: a bound of first order."""
    now = getattr(r.itl, percentile)
    left = {c: getattr(ceiling, percentile) for c, ceiling in r.ceiling.items() if c not in ("fwd", "pad", "residual")}
    best = min(left, key=lambda c: left[c]) if left else None
    if not best or not now or left[best] > now * (1 - LEAST):
        return ""
    label = {"p99": "p99", "p999": "p99.9"}[percentile]
    return f"without {words.plain(best)}, {label} falls from {words.unit(now)} to {words.unit(left[best])}"
