"""The flags that advice names are transformers' own, as the installed version's help has them, defaults included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import engine_flags
from stallbook.advise.knobs_transformers import TRANSFORMERS, VERSION


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    return engine_flags.ask(Path(__file__).with_name("transformers_flags.py"))


def test_every_flag_is_one_of_the_installed_version(installed: dict[str, Any]) -> None:
    engine_flags.are_its_own(TRANSFORMERS, installed)


def test_the_stored_flags_are_those_of_the_installed_version(installed: dict[str, Any]) -> None:
    engine_flags.are_stored("transformers", VERSION, installed)
