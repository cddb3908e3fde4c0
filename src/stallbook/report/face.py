"""How a report shows itself in a notebook: the answer, what the tail's time went to, and the whole below."""

from __future__ import annotations

from html import escape

from stallbook.faces import bar, sheet
from stallbook.report import text, words
from stallbook.report.model import RunReport

__all__ = ["html"]


def html(r: RunReport) -> str:
    """A small table under the report's first sentence; the text report folded away below it."""
    rows: list[tuple[str, ...]] = [("", "of the tail", "of all", "p99 without, ms", "")]
    for cause in sorted(r.tail.share, key=lambda cause: -r.tail.share[cause]):
        share = r.tail.share[cause]
        if share or r.all.share.get(cause):
            ceiling = words.ms(r.ceiling[cause].p99) if cause in r.ceiling else ""
            rows.append(
                (cause, words.percent(share), words.percent(r.all.share.get(cause)), ceiling, bar(cause, share))
            )
    whole = f"<pre>{escape(text.dumps([r]))}</pre>"
    return sheet(text.answer(r), rows) + f"<details><summary>The whole report</summary>{whole}</details>"
