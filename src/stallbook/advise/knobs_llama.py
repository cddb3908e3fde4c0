"""llama.cpp's flags, as `llama-server --help` spells them."""

from __future__ import annotations

from typing import Final

from stallbook.advise.knobs import Engine, Knob, budget, is_, small_budget
from stallbook.advise.measured import Measured

__all__ = ["LLAMA", "VERSION"]

VERSION: Final = "b11434"


def _room(value: object, m: Measured) -> bool:
    """Twice as many tokens a pass as slots."""
    slots = m.setting("parallel")
    return isinstance(value, int) and isinstance(slots, int) and value >= 2 * slots


def _cores(value: object, m: Measured) -> bool:
    """Whether threads were named at all; how many cores there are is not in the log."""
    return isinstance(value, int) and value == 1


LLAMA: Final = Engine(
    name="llama.cpp",
    prefix="llama.cpp",
    source=f"llama.cpp {VERSION}, llama-server --help",
    knobs=(
        Knob("smaller-chunks", "--batch-size", "batch_size", 2048, "lower", budget, small_budget),
        Knob("fewer-sequences", "--parallel", "parallel", -1, "lower"),
        Knob("more-kv", "--ctx-size", "ctx_size", 0, "raise"),
        Knob("smaller-kv", "--cache-type-k", "cache_type_k", "f16", "set", "q8_0"),
        Knob("smaller-kv", "--cache-type-v", "cache_type_v", "f16", "set", "q8_0"),
        Knob("own-cores", "--cpu-range", "cpu_range"),
        Knob("fewer-threads", "--threads", "threads", -1, "lower", done=_cores),
        Knob("room-in-the-step", "--batch-size", "batch_size", 2048, "raise", done=_room),
        Knob("less-work", "--gpu-layers", "gpu_layers", "auto", "raise"),
        Knob("less-work", "--flash-attn", "flash_attn", "auto", "set", "on", is_("on")),
        Knob("less-work", "--spec-draft-model", "spec_draft_model"),
        Knob("smaller-prompt-cache", "--cache-ram", "cache_ram", 8192, "lower", done=is_(0)),
        Knob("smaller-prompt-cache", "--cache-idle-slots", "cache_idle_slots", True, "set", "off"),
        Knob("more-frontends", "--threads-http", "threads_http", -1, "raise"),
        Knob("warm-up", "--warmup", "warmup", True, done=is_(True)),
    ),
    version=VERSION,
    by_itself={
        "reuse-prefixes": "llama.cpp keeps each slot's prompt, and reuses what the next one shares with it",
        "tokenize-off-loop": "llama.cpp tokenizes in its HTTP threads",
        "fair-policy": "llama.cpp serves requests in order of arrival",
    },
)
