"""vLLM's flags, as `vllm serve --help=all` spells them."""

from __future__ import annotations

from typing import Final

from stallbook.advise.knobs import Engine, Knob, at_least, budget, covers, is_, small_budget
from stallbook.advise.measured import Measured

__all__ = ["VERSION", "VLLM"]

VERSION: Final = "0.32.0"


def _rows(m: Measured) -> str:
    return str(m.largest_batch or "")


def _room(value: object, m: Measured) -> bool:
    """Twice as many tokens a step as requests may run."""
    most = m.setting("max_num_seqs")
    return isinstance(value, int) and isinstance(most, int) and value >= 2 * most


VLLM: Final = Engine(
    name="vLLM",
    prefix="vllm",
    source=f"vLLM {VERSION}, vllm serve --help=all",
    simulated=True,
    knobs=(
        Knob(
            "smaller-chunks", "--max-num-batched-tokens", "max_num_batched_tokens", None, "lower", budget, small_budget
        ),
        Knob("cap-long-prompts", "--long-prefill-token-threshold", "long_prefill_token_threshold", 0, "set", budget),
        Knob("reuse-prefixes", "--enable-prefix-caching", "enable_prefix_caching", None, done=is_(True)),
        Knob("prefill-elsewhere", "--kv-transfer-config", "kv_transfer_config"),
        Knob("admit-watermark", "--watermark", "watermark", 0.0, "set", "0.1", at_least(0.1)),
        Knob("more-kv", "--gpu-memory-utilization", "gpu_memory_utilization", 0.92, "raise"),
        Knob("more-kv", "--kv-cache-memory-bytes", "kv_cache_memory_bytes", None, "raise"),
        Knob("fewer-sequences", "--max-num-active-seqs", "max_num_active_seqs", None, "lower"),
        Knob("fewer-sequences", "--max-num-seqs", "max_num_seqs", None, "lower"),
        Knob("smaller-kv", "--kv-cache-dtype", "cache_dtype", "auto", "set", "fp8"),
        Knob(
            "capture-sizes", "--max-cudagraph-capture-size", "max_cudagraph_capture_size", None, "set", _rows, covers
        ),
        Knob("capture-sizes", "--cudagraph-capture-sizes", "cudagraph_capture_sizes", None, done=covers),
        Knob("finer-sizes", "--cudagraph-capture-sizes", "cudagraph_capture_sizes"),
        Knob("captured-decode", "--no-enforce-eager", "enforce_eager", False, done=is_(False)),
        Knob("token-ids", "--skip-tokenizer-init", "skip_tokenizer_init", False, done=is_(True)),
        Knob("own-cores", "--numa-bind-cpus", "numa_bind_cpus"),
        Knob("own-cores", "--numa-bind", "numa_bind", False),
        Knob("room-in-the-step", "--max-num-batched-tokens", "max_num_batched_tokens", None, "raise", done=_room),
        Knob("fair-policy", "--scheduling-policy", "policy", "fcfs", "set", "fcfs", is_("fcfs")),
        Knob("less-work", "--tensor-parallel-size", "tensor_parallel_size", 1, "raise"),
        Knob("less-work", "--quantization", "quantization"),
        Knob("less-work", "--speculative-config", "speculative_config"),
        Knob("overlap", "--async-scheduling", "async_scheduling", None, done=is_(True)),
        Knob("stream-interval", "--stream-interval", "stream_interval", 1, "raise"),
        Knob("more-frontends", "--api-server-count", "api_process_count", None, "raise"),
        Knob("more-frontends", "--renderer-num-workers", "renderer_num_workers", 1, "raise"),
        Knob("kv-store", "--kv-offloading-size", "kv_offloading_size"),
        Knob("resident-adapters", "--max-loras", "max_loras", 1, "raise"),
        Knob("resident-adapters", "--max-cpu-loras", "max_cpu_loras", None, "raise"),
        Knob("grammar-backend", "--structured-outputs-config", "structured_outputs_config"),
        Knob("warm-up", "--jit-monitor-mode", "jit_monitor_mode", "warn", "set", "error"),
    ),
    version=VERSION,
    by_itself={
        "gc-freeze": "vLLM freezes the heap after start-up by itself",
        "tokenize-off-loop": "vLLM tokenizes in its API servers",
    },
)  # fmt: skip
