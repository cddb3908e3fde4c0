"""Fixtures for the adapters' tests."""

from __future__ import annotations

from fake_vllm import clock, utils

__all__ = ["clock", "utils"]
