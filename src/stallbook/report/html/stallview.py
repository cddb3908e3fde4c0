"""The worst stalls of a run's page: each in words, with its picture."""

from __future__ import annotations

from collections.abc import Iterator

from stallbook.causes import CLEAN
from stallbook.report import words
from stallbook.report.detail import Detail
from stallbook.report.html.blocks import Block, Folded, Section, Table, Text, chips, figure
from stallbook.report.html.lanes import causes_of, picture
from stallbook.report.stalled import parts, rules_out, told
from stallbook.report.text import meaning
from stallbook.scene import Scene
from stallbook.stalls import Stall

__all__ = ["stalls"]


def stalls(d: Detail, at: str) -> Iterator[Block]:
    """What long gaps hold up, then the worst one by one, then those that have no picture."""
    s = d.report.stalls
    over = words.unit(s.threshold_ns / 1e6)
    held = f"{words.seconds(s.stalled_ns)} beyond that, {words.percent(s.share)} of stream time"
    yield Text(f"{s.count:,} gaps over {over}: {held}." if s.count else f"No gap is over {over}.")
    yield Text(
        "Time runs to the right; the stall is shaded. Colours are causes; in slices, each is as high as its share."
    )
    met: set[str] = set()
    for i, (stall, scene) in enumerate(d.stalls, 1):
        yield _one(stall, scene, f"{at}stall-{i}", i, explained=stall.primary in met)
        met.add(stall.primary)
    shown = {id(stall) for stall, _ in d.stalls}
    if rest := [one for one in told(d.report) if id(one) not in shown]:
        head = ("request", "cause", "from, s", "ms", "streams", "stopped", "live")
        rows = [
            [
                words.plain(o.request),
                words.plain(o.primary),
                f"{o.start_ns / 1e9:,.3f}",
                words.ms(o.length_ns / 1e6),
                f"{o.streams:,}",
                f"{o.stopped:,}",
                f"{o.live:,}",
            ]
            for o in rest
        ]
        yield Folded(
            f"{words.many(len(rest), 'more stall')} without a picture", [Table("Further stalls", head, rows, 2)]
        )


def _one(s: Stall, scene: Scene, name: str, number: int, *, explained: bool) -> Section:
    length = words.unit(s.length_ns / 1e6)
    title = f"{number}. {length} of {words.plain(s.primary)}, {words.seconds(s.start_ns)} into the run"
    others = f" and {words.many(s.streams - 1, 'other')} with the same gap" if s.streams > 1 else ""
    share = {c: ns / s.length_ns for c, ns in s.parts_ns.items()}
    alt = (
        f"What ran in a stall of {length}, lane by lane. Its time: {words.shares(share)}. {rules_out(s).capitalize()}."
    )
    blocks: list[Block] = [
        Text(f"Request {words.plain(s.request)}{others}.{'' if explained else _meaning(s)}"),
        Text(f"Its time: {parts(s.parts_ns)}."),
        Text(f"Who else: {rules_out(s)}."),
        figure(name, title, alt, lambda look: picture(scene, look), [chips(causes_of(scene))]),
    ]
    return Section(f"{name}-section", title, blocks)


def _meaning(s: Stall) -> str:
    return "" if s.primary == CLEAN else f" {words.plain(s.primary)}: {meaning(s.primary)}."
