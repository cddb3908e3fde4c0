"""Fixtures for the adapters' tests."""

from __future__ import annotations

from fake_transformers import unhooked
from fake_vllm import utils
from fakes import clock, stream

__all__ = ["clock", "stream", "unhooked", "utils"]
