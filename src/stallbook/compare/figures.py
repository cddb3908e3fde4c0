"""What can be asked of runs, by name: `itl.p99`, `ttft.p50`, `tokens_per_s`, `tail.preempt`, `gap.prefill`, ...

Each figure is read off totals, those of one run or of several together: a quantile is one of the merged distribution.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from stallbook.abilities import PLACED
from stallbook.causes import ORDER, OTHER
from stallbook.compare.sample import Sample
from stallbook.compare.totals import Totals
from stallbook.errors import StallbookError
from stallbook.tally import Distribution, Mix

__all__ = ["CAUSE_GROUPS", "FIGURES", "NOT_CHARGED", "NOT_PART", "NO_SUCH", "Figure", "Kind", "figure", "unknown"]

NOT_PART: Final = "no part of these gaps"
NOT_CHARGED: Final = "not charged under these rules"
NO_SUCH: Final = "no such segment or hold in this log"

Kind = Literal["time", "share", "rate", "count"]
"""A time is in ms; a rate is better when higher, all else when lower."""


@dataclass(frozen=True)
class Figure:
    """One figure. read: None where the log does not have it. cause: the cause that it is about, "" for none."""

    name: str
    kind: Kind
    read: Callable[[Totals], float | None]
    cause: str = ""

    def values(self, of: Iterable[Totals]) -> list[float | None]:
        """The figure of each."""
        return [self.read(one) for one in of]


def _percentile(distribution: Distribution, q: float) -> float | None:
    ns = distribution.max if q == 100 else distribution.percentile(q)
    return None if ns is None else ns / 1e6


def _itl(q: float) -> Callable[[Totals], float | None]:
    return lambda t: _percentile(t.gaps.lengths, q)


def _ttft(q: float) -> Callable[[Totals], float | None]:
    return lambda t: _percentile(t.ttft, q)


def _mean(t: Totals) -> float | None:
    return t.all.total_ns / t.all.gaps / 1e6 if t.all.gaps else None


def _rate(t: Totals) -> float | None:
    return t.tokens / t.wall_s if t.wall_s > 0 else None


FIGURES: Final = {
    f.name: f
    for f in (
        *(Figure(f"itl.{name}", "time", _itl(q)) for name, q in (("p50", 50), ("p90", 90), ("p99", 99))),
        *(Figure(f"itl.{name}", "time", _itl(q)) for name, q in (("p99.9", 99.9), ("max", 100))),
        *(Figure(f"ttft.{name}", "time", _ttft(q)) for name, q in (("p50", 50), ("p99", 99))),
        Figure("tokens_per_s", "rate", _rate),
        Figure("itl.mean", "time", _mean),
        Figure("ttft.max", "time", _ttft(100)),
        Figure("stalls.count", "count", lambda t: t.stalled[0]),
        Figure("stalls.share", "share", lambda t: t.stalled[1]),
        Figure("requests", "count", lambda t: t.requests),
        Figure("tokens", "count", lambda t: t.tokens),
        Figure("preemptions", "count", lambda t: t.preemptions),
        Figure("eager_steps", "count", lambda t: t.eager_steps),
    )
}
"""Those with a name of their own; any `itl.pN` and `ttft.pN` and the groups below are figures, too."""

CAUSE_GROUPS: Final = {
    "tail": "share of the tail's time",
    "all": "share of all gaps' time",
    "gap": "mean time in a gap",
    "first": "mean time in a wait for a first token",
}
"""Each followed by a cause: `tail.preempt`."""


def figure(name: str) -> Figure:
    """The figure of that name, or an error that names near ones."""
    if name in FIGURES:
        return FIGURES[name]
    group, _, rest = name.partition(".")
    if group in ("itl", "ttft") and (q := _quantile(rest)) is not None:
        return Figure(name, "time", (_itl if group == "itl" else _ttft)(q))
    if group in CAUSE_GROUPS and (rest in ORDER or (rest.startswith(OTHER) and rest != OTHER)):
        return _of_cause(name, group, rest)
    more = ("itl.pN", "ttft.pN", *(f"{group}.CAUSE" for group in CAUSE_GROUPS))
    known = [*FIGURES, *(f"{group}.{cause}" for group in CAUSE_GROUPS for cause in ORDER)]
    near = difflib.get_close_matches(name, known, 3)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join((*FIGURES, *more))}"
    raise StallbookError("unknown-figure", f"{name!r:.80} is no figure", remedy)


def _quantile(text: str) -> float | None:
    """`p99` is 99, `p99.9` and `p999` are 99.9."""
    if not (found := re.fullmatch(r"p(\d\d?)(?:\.(\d{1,6})|(\d{1,4}))?", text)) or text in ("p0", "p00"):
        return None
    if text == "p100":
        return 100.0
    return float(f"{found[1]}.{found[2] or found[3] or 0}")


def _of_cause(name: str, group: str, cause: str) -> Figure:
    mix: Mapping[str, Callable[[Totals], Mix | None]] = {
        "tail": lambda t: t.tail, "all": lambda t: t.all, "gap": lambda t: t.all, "first": lambda t: t.waits,
    }  # fmt: skip
    of, per_one = mix[group], group in ("gap", "first")

    def read(totals: Totals) -> float | None:
        found = of(totals)
        if found is None or not found.gaps or not found.total_ns:
            return None
        ns = found.time_ns.get(cause, 0)
        return ns / found.gaps / 1e6 if per_one else ns / found.total_ns

    return Figure(name, "time" if per_one else "share", read, cause)


def unknown(one: Figure, sample: Sample) -> str | None:
    """Why a log cannot show a cause's figure; None where it can, and for a figure that is about no cause."""
    cause, group = one.cause, one.name.partition(".")[0]
    if not cause:
        return None
    if cause == "queue" and group != "first":
        return NOT_PART
    if cause in ("frontend", "network") and (group == "first" or sample.boundary == "engine"):
        return NOT_PART
    ability = sample.abilities.get(cause)
    if ability is None:
        return NO_SUCH if cause.startswith(OTHER) else NOT_CHARGED
    # A cause of which only a total or a hint is known has no time of its own in the gaps.
    return ability if ability != PLACED and not one.read(sample.totals) else None
