"""The demonstrator's settings, as `stallbook demo --help` spells them."""

from __future__ import annotations

from typing import Final

from stallbook.advise.knobs import Engine, Knob, at_least, budget, covering, covers, is_, small_budget
from stallbook.advise.measured import Measured

__all__ = ["DEMO"]


def _tokenizes_apart(m: Measured) -> bool:
    return bool(m.setting("tokenize") == "process")


def _last_cpu(m: Measured) -> str:
    cpus = m.setting("cpus")
    return str(cpus - 1) if isinstance(cpus, int) and cpus > 1 else ""


DEMO: Final = Engine(
    name="the demonstrator",
    prefix="stallbook demo",
    source="stallbook demo --help",
    simulated=True,
    knobs=(
        Knob("smaller-chunks", "--token-budget", "token_budget", 2048, "lower", budget, small_budget),
        Knob("admit-watermark", "--admit-watermark", "admit_watermark", 0.0, "set", "0.1", at_least(0.1)),
        Knob("more-kv", "--kv-blocks", "kv_blocks", 1000, "raise"),
        Knob("fewer-sequences", "--max-num-seqs", "max_num_seqs", 48, "lower"),
        Knob(
            "capture-sizes", "--capture-sizes", "capture_sizes", (1, 2, 4, 8, 16, 24, 32), "set", covering, covers
        ),
        Knob("finer-sizes", "--capture-sizes", "capture_sizes", (1, 2, 4, 8, 16, 24, 32)),
        Knob("gc-freeze", "--gc-freeze", "gc_freeze", False, done=is_(True)),
        Knob("fewer-objects", "--compact-history", "compact_history", False, done=is_(True)),
        Knob("tokenize-off-loop", "--tokenize", "tokenize", "loop", "set", "process", is_("process")),
        Knob("own-cores", "--tokenizer-cpus", "tokenizer_cpus", None, "set", _last_cpu, when=_tokenizes_apart),
        Knob("fewer-threads", "--blas-threads", "blas_threads", 1, "set", "1", is_(1)),
        Knob(
            "captured-decode", "--capture-sizes", "capture_sizes", (1, 2, 4, 8, 16, 24, 32), "set", covering,
            done=lambda value, m: bool(value),
        ),
    ),
)  # fmt: skip
