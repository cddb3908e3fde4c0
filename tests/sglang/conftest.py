"""Tests against a real SGLang: `make test-sglang`. Collected only where SGLang is installed; all bear its mark."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HOME = Path(sys.prefix).parent
"""What `environment.py` made: the virtual environment that runs this lies in it, and the model."""

collect_ignore_glob = [] if find_spec("aiohttp") and find_spec("sglang") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.sglang)


@pytest.fixture(scope="session")
def home() -> Path:
    """The environment's folder."""
    assert (HOME / "tiny" / "config.json").exists(), "run these tests with `make test-sglang`"
    return HOME
