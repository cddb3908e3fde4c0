"""What stands beside the attributed gaps: first tokens, gaps at other boundaries, readings of several tokens."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stallbook.report import words
from stallbook.report.layout import pairs, section
from stallbook.report.model import RunReport
from stallbook.report.summary import Delivered, Summary

__all__ = ["after_and_left_out", "boundaries", "first_tokens", "readings", "waiting"]


def readings(r: RunReport) -> Iterator[tuple[str, str]]:
    """The other two series of a log whose emissions bring several tokens."""
    told = r.series
    if told is None:
        return
    yield "", f"per emission, as attributed; {told.several:,} bring several tokens"
    if not told.zero_filled.p50:
        yield "", "a median of 0 is several tokens at once, not speed"
    yield "zero-filled, ms", words.percentiles(told.zero_filled.named())
    yield "divided, ms", words.percentiles(told.divided.named())


def first_tokens(r: RunReport) -> Iterator[RenderableType]:
    """What the wait for the first token is made of."""
    if r.first is None or not r.first.waits.all.gaps:
        return
    yield from section("Where the first token's time went", _shares(r.first.waits, "wait"), *map(Text, waiting(r)))


def waiting(r: RunReport) -> list[str]:
    """What is known of the wait for the first token beside its causes."""
    if r.first is None:
        return []
    never = r.first.never_admitted
    notes = [f"Never admitted on record: {never:,}; their queue reads as other causes."] if never else []
    if (blocked := r.first.blocked_ms) and (total := sum(blocked.values())):
        told = [
            f"{name} {words.percent(ms / total)}" for name, ms in sorted(blocked.items(), key=lambda b: -b[1]) if ms
        ]
        notes.append(f"What blocked admission meanwhile: {', '.join(told)}.")
    if held := sorted(r.first.held.items(), key=lambda h: -h[1]):
        told = [f"{kind} {words.percent(share)}" for kind, share in held]
        notes.append(f"Of the queue, before admission: {', '.join(told)}.")
    return notes


def boundaries(r: RunReport) -> Iterator[RenderableType]:
    """The gaps at each other boundary that the log knows."""
    for name, told in r.beyond.items():
        gaps, notes = told.gaps, after_and_left_out(told)
        body: list[RenderableType] = [Text("No gaps.")]
        if gaps.all.gaps:
            body = [Text(f"{words.percentiles(gaps.times.named())} ms"), _shares(gaps, "gap")]
        yield from section(f"Gaps at the {name}", *body, *map(Text, notes))


def after_and_left_out(told: Delivered) -> list[str]:
    """What passed after emission, and the deliveries that are in no gap."""
    return [*_after(told), *_left_out(told)]


def _shares(of: Summary, noun: str) -> Table:
    """Shares of time over all, and over those at or above their p99."""
    rows = [(words.many(of.all.gaps, noun), words.shares(of.all.share))]
    if of.tail.gaps < of.all.gaps:
        rows.append((f"{of.tail.gaps:,} of {words.unit(of.threshold_ms)} or more", words.shares(of.tail.share)))
    return pairs(rows)


def _after(told: Delivered) -> Iterator[str]:
    after, tail = told.after, told.gaps.tail.gaps
    if after is None or not after.longest_ns:
        return
    if after.tail_gaps:
        yield f"No engine gap in {after.tail_gaps:,} of the {tail:,} longest: the token waited after emission."
    yield f"The longest wait after emission: {words.unit(after.longest_ns / 1e6)}."


def _left_out(told: Delivered) -> Iterator[str]:
    """Deliveries that are in no gap."""
    kinds = ((told.unmatched, "of a token never emitted"), (told.empty, "of no token"))
    left = [f"{n:,} {what}" for n, what in kinds if n]
    if left:
        yield f"Deliveries left out: {', '.join(left)}."
