"""Planted faults with known answers: what the attribution is scored against.

A journal of its own clock reads keeps what was planted, when, and how much. The recorder and the partition are told
nothing of it: they find it, or not, from what an engine records anyway.

Importing this package does not import NumPy: whoever starts a run sets the BLAS threads first (`python -m
stallbook.inject` does).
"""

from __future__ import annotations

from stallbook.inject.task import KINDS, Task

__all__ = ["KINDS", "Task"]
