"""Tests against a real transformers: `make test-transformers`. Collected only in its environment; all bear its mark."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HOME = Path(sys.prefix).parent
"""What `environment.py` made: the virtual environment that runs this lies in it, and the model."""

collect_ignore_glob = [] if find_spec("aiohttp") and find_spec("torch") and find_spec("transformers") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.transformers)


@pytest.fixture(scope="session")
def home() -> Path:
    """The environment's folder."""
    assert (HOME / "endless" / "config.json").exists(), "run these tests with `make test-transformers`"
    return HOME
