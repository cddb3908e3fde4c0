"""The report's section on `stallbook.stalls` as text: the worst gaps, the time they hold up, a run slow throughout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from stallbook.report import words
from stallbook.report.layout import section
from stallbook.report.model import RunReport
from stallbook.stalls import LEAST_NS, Stall

__all__ = ["against_best", "parts", "rules_out", "told", "total", "worst"]

SHOWN: Final = 5
PARTS: Final = 4
FAR_BELOW: Final = 0.6
"""A best tenth of decode steps below this part of the baseline says that the usual step is slow."""


def total(r: RunReport) -> Iterator[tuple[str, str]]:
    """Gaps over the threshold, and what they hold up."""
    s = r.stalls
    if not r.gaps:
        return
    over = f"over {words.unit(s.threshold_ns / 1e6)}"
    if not s.count:
        yield "stalls", f"none {over}"
        return
    held = f"{words.seconds(s.stalled_ns)} beyond that, {words.percent(s.share)} of stream time"
    yield "stalls", f"{s.count:,} {over}: {held}"


def worst(r: RunReport) -> Iterator[RenderableType]:
    """The worst stalls, three lines each."""
    if shown := told(r)[:SHOWN]:
        yield from section("The worst stalls", *(_stall(s) for s in shown))


def told(r: RunReport) -> list[Stall]:
    """The worst stalls, then the worst of each other cause. What is no longer than the usual gap is none."""
    least = min(LEAST_NS, 2 * r.stalls.median_ns)
    return [s for s in (*r.stalls.worst, *r.stalls.of_causes) if s.length_ns >= least]


def _stall(s: Stall) -> Text:
    length, start = words.unit(s.length_ns / 1e6), words.seconds(s.start_ns)
    others = f" and {words.many(s.streams - 1, 'other')}" if s.streams > 1 else ""
    lines = [f"{length} from {start} on: {words.plain(s.primary)}; request {words.plain(s.request)}{others}"]
    lines += [f"  {parts(s.parts_ns)}", f"  {rules_out(s)}"]
    return Text("\n".join(lines))


def parts(parts_ns: dict[str, int]) -> str:
    """The largest parts in ms, the others as one figure."""
    order = sorted(parts_ns, key=lambda c: -parts_ns[c])
    least = sum(parts_ns.values()) / 100
    shown = [c for c in order[:PARTS] if parts_ns[c] >= least]
    told = [f"{words.plain(cause)} {words.ms(parts_ns[cause] / 1e6)}" for cause in shown]
    if rest := order[len(shown) :]:
        told.append(f"all else {words.ms(sum(parts_ns[cause] for cause in rest) / 1e6)}")
    return f"{', '.join(told)} ms"


def rules_out(s: Stall) -> str:
    """Which of the live streams stopped, and which causes that leaves out."""
    match s.scope:
        case "all":
            return f"all {s.live:,} live streams stopped: rules out what stops one (eviction, hold)"
        case "some" | "one" if s.primary == "prefill":
            return f"{s.stopped:,} of {s.live:,} live streams stopped: their own prefill, for another's would stop all"
        case "some":
            return f"{s.stopped:,} of {s.live:,} live streams stopped: rules out what stops all (gc, prefill)"
        case "one":
            return f"only this one of {s.live:,} live streams: rules out what stops all (gc, prefill)"
        case "alone":
            return "the only live stream: rules nothing out"


def against_best(r: RunReport) -> Iterator[RenderableType]:
    """A baseline that follows the run calls sustained slowness normal: it is held against the run's best."""
    best = r.baseline.get("best")
    if not isinstance(best, float) or not 0 < best < FAR_BELOW:
        return
    lines = [
        f"The best tenth of decode steps took {words.percent(best)} of the baseline or less: the run's",
        f"usual step may be slow, at up to {1 / best:.1f} times its best, and fwd would hold that.",
    ]
    if r.baseline.get("method") == "least squares":
        lines.append("Or a few slow steps bent the least squares: see --rules full.")
    else:
        lines.append("Look for too few CPUs, a CPU quota, a neighbour, a throttled clock.")
    yield from section("Against the run's best", Text("\n".join(lines)))
