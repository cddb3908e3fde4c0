"""The engines whose knobs are known. Another engine is another table here."""

from __future__ import annotations

from typing import Final

from stallbook.advise.knobs import Engine
from stallbook.advise.knobs_demo import DEMO
from stallbook.advise.knobs_llama import LLAMA
from stallbook.advise.knobs_sglang import SGLANG
from stallbook.advise.knobs_transformers import TRANSFORMERS
from stallbook.advise.knobs_vllm import VLLM

__all__ = ["ENGINES", "engine_of"]

ENGINES: Final[tuple[Engine, ...]] = (DEMO, VLLM, SGLANG, TRANSFORMERS, LLAMA)


def engine_of(name: str) -> Engine | None:
    """The table of the engine that a log names; None where there is none."""
    told = name.lower()
    return next((engine for engine in ENGINES if told.startswith(engine.prefix)), None)
