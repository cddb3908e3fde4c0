"""The flags that advice names are SGLang's own, as the installed version's parser has them, defaults included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import engine_flags
from stallbook.advise.knobs_sglang import SGLANG, VERSION


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    return engine_flags.ask(Path(__file__).with_name("sglang_flags.py"), {"SGLANG_USE_CPU_ENGINE": "1"})


def test_every_flag_is_one_of_the_installed_version(installed: dict[str, Any]) -> None:
    engine_flags.are_its_own(SGLANG, installed)


def test_the_stored_flags_are_those_of_the_installed_version(installed: dict[str, Any]) -> None:
    engine_flags.are_stored("sglang", VERSION, installed)
