"""The page: one file that asks nothing of anywhere, whatever the logs behind it hold."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from stallbook import __version__
from stallbook.palette import SLOTS
from stallbook.report.detail import Detail
from stallbook.report.headline import headline, support
from stallbook.report.html.blocks import Block, Folded, Section, Text
from stallbook.report.html.look import INK
from stallbook.report.html.rungs import blocks, headline_of_many
from stallbook.report.html.view import sections, summary
from stallbook.report.many import short

__all__ = ["WHOLE", "page"]

WHOLE: Final = 3
"""Of more runs than these, each has its figures and the table of its causes, but no charts of its own."""

Tell = Callable[[str], object]


def page(details: Sequence[Detail], tell: Tell = lambda _: None) -> str:
    """The page of one run, or of several side by side."""
    script = _asset("page.js")
    one = len(details) == 1
    drawn = [_run(d, "", tell) for d in details] if one else _several(details, tell)
    title = headline(details[0].report) if one else headline_of_many([d.report for d in details])
    lead = list(_lead(details[0])) if one else []
    told: str = _template().render(
        title=title,
        lead=lead,
        broken=[short(d.report.path) for d in details if not d.report.exact],
        of=short(details[0].report.path) if one else "",
        sections=drawn[0] if one else drawn,
        style=f"{_variables()}\n{_asset('page.css')}",
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
    )
    return told


def _lead(d: Detail) -> list[str]:
    return list(support(d.report))


def _run(d: Detail, at: str, tell: Tell) -> list[Section]:
    out = []
    for section in sections(d, at):
        tell(section.title)
        out.append(section)
    return out


def _several(details: Sequence[Detail], tell: Tell) -> list[Section]:
    """The comparison, then every run: whole where they are few, else folded."""
    tell("side by side")
    out = [Section("runs", "Side by side", list(blocks([d.report for d in details])))]
    told: list[Section] = []
    for i, d in enumerate(details, 1):
        tell(short(d.report.path))
        body: list[Block] = [Text(headline(d.report)), *map(Text, _lead(d))]
        if len(details) <= WHOLE:
            body += _run(d, f"r{i}-", tell)
        else:
            body = [body[0], Folded("Figures and causes", [*body[1:], *summary(d)])]
        told.append(Section(f"r{i}", short(d.report.path), body))
    return out + (told if len(details) <= WHOLE else [Section("each", "Run by run", told)])


def _variables() -> str:
    """Every colour as a variable, on a light ground and, on a screen that asks for it, on a dark one."""
    light = {**{f"c-{s}": c.light for s, c in SLOTS.items()}, **{name: both[0] for name, both in INK.items()}}
    dark = {**{f"c-{s}": c.dark for s, c in SLOTS.items()}, **{name: both[1] for name, both in INK.items()}}
    rules = [f".{name}{{--chip:var(--{name})}}" for name in light if name.startswith("c-")]
    rules += [f".i-{name}{{--chip:var(--{name})}}" for name in INK]
    values = [";".join(f"--{name}:{value}" for name, value in of.items()) for of in (light, dark)]
    root = f":root{{color-scheme:light dark;{values[0]}}}"
    return "\n".join([root, f"@media screen and (prefers-color-scheme:dark){{:root{{{values[1]}}}}}", *rules])


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["drawn"] = Markup  # a chart, which `svg.inline` has written: the only thing that is not escaped
    return made.get_template("page.html.jinja")
