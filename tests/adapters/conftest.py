"""Fixtures for the adapters' tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from fake_transformers import unhooked
from fake_vllm import utils
from fakes import clock, stream

__all__ = ["clock", "environment", "stream", "unhooked", "utils"]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """What a first process of a server settles is in its environment: the next test's is another server."""
    before = {key: value for key, value in os.environ.items() if key.startswith("STALLBOOK")}
    yield
    for key in [key for key in os.environ if key.startswith("STALLBOOK")]:
        del os.environ[key]
    os.environ.update(before)
