"""SGLang's flags, as `python -m sglang.launch_server --help` spells them."""

from __future__ import annotations

from typing import Final

from stallbook.advise.knobs import Engine, Knob, budget, covers, is_, small_budget
from stallbook.advise.measured import Measured

__all__ = ["SGLANG", "VERSION"]

VERSION: Final = "0.5.23"


def _rows(m: Measured) -> str:
    return str(m.largest_batch or "")


SGLANG: Final = Engine(
    name="SGLang",
    prefix="sglang",
    source=f"SGLang {VERSION}, python -m sglang.launch_server --help",
    knobs=(
        Knob("smaller-chunks", "--chunked-prefill-size", "chunked_prefill_size", None, "lower", budget, small_budget),
        Knob("space-prefills", "--prefill-decode-interval", "prefill_decode_interval", None, "raise"),
        Knob("cap-long-prompts", "--prefill-max-requests", "prefill_max_requests", None, "lower"),
        Knob("prefill-elsewhere", "--disaggregation-mode", "disaggregation_mode", "null"),
        Knob("admit-watermark", "--schedule-conservativeness", "schedule_conservativeness", 1.0, "raise"),
        Knob("more-kv", "--mem-fraction-static", "mem_fraction_static", None, "raise"),
        Knob("fewer-sequences", "--max-running-requests", "max_running_requests", None, "lower"),
        Knob("smaller-kv", "--kv-cache-dtype", "kv_cache_dtype", "auto", "set", "fp8_e5m2"),
        Knob("capture-sizes", "--cuda-graph-max-bs-decode", "cuda_graph_max_bs_decode", None, "set", _rows, covers),
        Knob("capture-sizes", "--cuda-graph-bs-decode", "cuda_graph_bs_decode", None, done=covers),
        Knob("finer-sizes", "--cuda-graph-bs-decode", "cuda_graph_bs_decode"),
        Knob("captured-decode", "--cuda-graph-backend-decode", "cuda_graph_backend_decode", None, "set", "full"),
        Knob("gc-thresholds", "--gc-threshold", "gc_threshold", None, "raise"),
        Knob("token-ids", "--skip-tokenizer-init", "skip_tokenizer_init", False, done=is_(True)),
        Knob("own-cores", "--numa-node", "numa_node"),
        Knob("fair-policy", "--schedule-policy", "schedule_policy", "fcfs", "set", "fcfs", is_("fcfs")),
        Knob("less-work", "--tp-size", "tp_size", 1, "raise"),
        Knob("less-work", "--quantization", "quantization"),
        Knob("less-work", "--speculative-algorithm", "speculative_algorithm"),
        Knob("stream-interval", "--stream-interval", "stream_interval", 1, "raise"),
        Knob("more-frontends", "--tokenizer-worker-num", "tokenizer_worker_num", 1, "raise"),
        Knob("more-frontends", "--detokenizer-worker-num", "detokenizer_worker_num", 1, "raise"),
        Knob("kv-store", "--enable-hierarchical-cache", "enable_hierarchical_cache", False, done=is_(True)),
        Knob("resident-adapters", "--max-loras-per-batch", "max_loras_per_batch", 8, "raise"),
        Knob("overlap-adapters", "--enable-lora-overlap-loading", "enable_lora_overlap_loading", None, done=is_(True)),
        Knob("grammar-backend", "--grammar-backend", "grammar_backend"),
        Knob("warm-up", "--warmups", "warmups"),
    ),
    version=VERSION,
    by_itself={
        "gc-freeze": "SGLang freezes the heap after its warm-up by itself",
        "tokenize-off-loop": "SGLang tokenizes in its tokenizer manager",
        "overlap": "SGLang overlaps by itself, unless it runs with --disable-overlap-schedule",
        "reuse-prefixes": "SGLang reuses prefixes by itself, unless it runs with --disable-radix-cache",
    },
)
