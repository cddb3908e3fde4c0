"""Advice from what a log measured: for each cause that owns the tail its evidence, its fix, the knob and the cost."""

from __future__ import annotations

from stallbook.advise.build import advise
from stallbook.advise.model import Advice, Cost, Finding, Fix, Remedy, Setting, Silence, Statement

__all__ = ["Advice", "Cost", "Finding", "Fix", "Remedy", "Setting", "Silence", "Statement", "advise"]
