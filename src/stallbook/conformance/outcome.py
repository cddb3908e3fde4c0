"""What the suite found: a line a check, and whether it holds."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Final

from stallbook.conformance.remedies import remedy

__all__ = ["Finding", "Outcome"]

_WORDS: Final = {True: "holds", False: "FAILS", None: "not tried"}
_COLUMNS: Final = 110
_INDENT: Final = " " * 13


@dataclass(frozen=True)
class Finding:
    """One check. part: what was done with the engine. held: None where it could not be tried. said: the figures."""

    part: str
    name: str
    held: bool | None
    said: str


@dataclass
class Outcome:
    """All that was found about an engine's adapter."""

    engine: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether something was checked, and nothing failed."""
        return any(one.held for one in self.findings) and not self.failed

    @property
    def failed(self) -> list[Finding]:
        """The checks that do not hold."""
        return [one for one in self.findings if one.held is False]

    def table(self) -> str:
        """For people: a part, its checks, what was seen, and beneath what fails, where to look."""
        width = max((len(one.name) for one in self.findings), default=0)
        lines, part = [f"{self.engine}: conformance"], ""
        for one in self.findings:
            if one.part != part:
                part = one.part
                lines += ["", part]
            lines.append(f"  {_WORDS[one.held]:<9}  {one.name:<{width}}  {one.said}")
            if one.held is False:
                told = remedy(one.part, one.name)
                lines += textwrap.wrap(
                    told, _COLUMNS, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
                )
        counts = [sum(one.held is held for one in self.findings) for held in (True, False, None)]
        lines += ["", f"{counts[0]} hold, {counts[1]} fail, {counts[2]} not tried"]
        return "\n".join(lines)
