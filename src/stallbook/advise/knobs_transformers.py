"""transformers' flags, as `transformers serve --help` spells them."""

from __future__ import annotations

from typing import Any, Final

from stallbook.advise.knobs import Engine, Knob, budget, small_budget
from stallbook.advise.measured import Measured

__all__ = ["TRANSFORMERS", "VERSION"]

VERSION: Final = "5.24.0"


def _graphs(value: Any, m: Measured) -> bool:
    """Whether decoding replays graphs: the log has both paths' answers, `(False, True)`."""
    return str(value).endswith(("True", "True)"))


TRANSFORMERS: Final = Engine(
    name="transformers",
    prefix="transformers",
    source=f"transformers {VERSION}, transformers serve --help",
    knobs=(
        Knob("smaller-chunks", "--cb-max-batch-tokens", "max_batch_tokens", None, "lower", budget, small_budget),
        Knob("more-kv", "--cb-num-blocks", "num_blocks", None, "raise"),
        Knob("more-kv", "--cb-max-memory-percent", "max_memory_percent", None, "raise"),
        Knob("smaller-kv", "--dtype", "dtype", "auto", "set", "bfloat16"),
        Knob("captured-decode", "--cb-use-cuda-graph", "use_cuda_graph", None, done=_graphs),
        Knob("room-in-the-step", "--cb-max-batch-tokens", "max_batch_tokens", None, "raise"),
        Knob("less-work", "--attn-implementation", "attn_implementation", None, "set", "flash_attention_2"),
        Knob("less-work", "--quantization", "quantization", None, "set", "bnb-8bit"),
    ),
    version=VERSION,
    by_itself={
        "reuse-prefixes": "transformers shares the blocks of equal prefixes by itself, where the model allows it",
        "overlap": "transformers lays out the next batch while one runs, by itself, where it replays graphs",
        "fair-policy": "transformers schedules in order of arrival by itself, unless its scheduler_type says otherwise",
        "tokenize-off-loop": "transformers tokenizes on the server's event loop, not on its generation thread",
    },
)
