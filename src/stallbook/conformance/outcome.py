"""What the suite found: a line a check, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Finding", "Outcome"]

_WORDS = {True: "holds", False: "FAILS", None: "not tried"}


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
        """For people: a part, its checks, and what was seen."""
        width = max((len(one.name) for one in self.findings), default=0)
        lines, part = [f"{self.engine}: conformance"], ""
        for one in self.findings:
            if one.part != part:
                part = one.part
                lines += ["", part]
            lines.append(f"  {_WORDS[one.held]:<9}  {one.name:<{width}}  {one.said}")
        counts = [sum(one.held is held for one in self.findings) for held in (True, False, None)]
        lines += ["", f"{counts[0]} hold, {counts[1]} fail, {counts[2]} not tried"]
        return "\n".join(lines)
