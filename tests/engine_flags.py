"""Whether the flags that advice names are an engine's own: what its installed version's parser or help says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stallbook.advise.knobs import Engine

STORED = Path(__file__).parent / "data" / "flags"
"""What the default suite reads."""


def ask(script: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `script` prints of the engine that is installed here: its `version`, and its `flags` with defaults."""
    given = os.environ | (environment or {})
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=given).stdout
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def are_its_own(engine: Engine, installed: Mapping[str, Any]) -> None:
    """Every flag that advice names is one of the installed version, with the default that advice knows."""
    flags = installed["flags"]
    assert {knob.flag for knob in engine.knobs} - set(flags) == set()
    defaults = {knob.flag: (knob.default, flags[knob.flag]) for knob in engine.knobs}
    assert {flag: both for flag, both in defaults.items() if both[0] != both[1]} == {}


def are_stored(name: str, version: str, installed: Mapping[str, Any]) -> None:
    """The stored flags are those of the installed version. STALLBOOK_UPDATE_GOLDEN=1 rewrites them."""
    stored = STORED / f"{name}-{version}.json"
    if os.environ.get("STALLBOOK_UPDATE_GOLDEN"):
        stored.write_text(json.dumps(installed, indent=0) + "\n", encoding="utf-8")
    if installed["version"] == version:
        assert json.loads(stored.read_text(encoding="utf-8")) == installed
