"""Markdown for a pull request: tables, and text out of a log where Markdown and HTML would read it as theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from stallbook.report import words

__all__ = ["cell", "code", "literal", "table"]

MARKUP: Final = re.compile(r"[\\`*~$]|(?<=\])[(\[]|(?<!\w)_|_(?!\w)")
"""What makes emphasis, code, formulas, links and pictures. Brackets and underscores stay where they make none."""
WORD: Final = re.compile(r"[\w.:%+-]+", re.ASCII)


def cell(text: str) -> str:
    """Text as it is, on one line."""
    plain = words.plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return MARKUP.sub(lambda found: f"&#{ord(found[0])};", plain).replace("|", "\\|")


def literal(name: str) -> str:
    """A name as code; one that backticks cannot hold as it is, in tags."""
    return f"`{name}`" if WORD.fullmatch(name) else code([name])


def code(names: Iterable[str]) -> str:
    """Names one by one, as code."""
    return ", ".join(f"<code>{cell(name)}</code>" for name in names)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> Iterator[str]:
    """Lines of a table; figures stand in the columns `right`."""
    flush = set(right)
    yield f"| {' | '.join(head)} |"
    yield "|" + "".join("---:|" if i in flush else "---|" for i in range(len(head)))
    for row in rows:
        yield f"| {' | '.join(row)} |"
