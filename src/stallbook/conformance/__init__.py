"""One suite that every adapter passes: `python -m stallbook.conformance MODULE:ENGINE`. See docs/adapters.md.

An author gives it an `Engine`: how to start the engine under test, give it work, ask it for its own counts and end it.
"""

from stallbook.conformance.engine import Answer, Ask, Counted, Engine, Limits, Script, Server
from stallbook.conformance.outcome import Finding, Outcome
from stallbook.conformance.suite import PARTS, conform

__all__ = [
    "PARTS", "Answer", "Ask", "Counted", "Engine", "Finding", "Limits", "Outcome", "Script", "Server", "conform"
]  # fmt: skip
