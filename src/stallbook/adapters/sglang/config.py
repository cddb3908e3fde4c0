"""What an SGLang scheduler is: of which ranks it is one, and the settings that explain its log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from stallbook.adapters.process import Process
from stallbook.adapters.settings import settings

__all__ = ["begin"]

_SETTINGS: Final = {
    "schedule": (
        "chunked_prefill_size", "prefill_decode_interval", "prefill_max_requests", "max_prefill_tokens",
        "schedule_conservativeness", "mem_fraction_static", "max_running_requests", "max_total_tokens",
        "schedule_policy", "retraction_policy", "enable_mixed_chunk", "disable_overlap_schedule", "page_size",
    ),
    "memory": ("disable_radix_cache", "enable_hierarchical_cache"),
    "model": ("context_length", "dtype", "kv_cache_dtype", "quantization"),
    "exec.kernel": ("attention_backend", "grammar_backend"),
    "exec.graph": ("cuda_graph_max_bs_decode", "cuda_graph_bs_decode", "cuda_graph_backend_decode"),
    "parallel": ("tp_size", "dp_size", "pp_size"),
    "device": ("device", "numa_node", "gc_threshold"),
    "serving": (
        "skip_tokenizer_init", "stream_interval", "tokenizer_worker_num", "detokenizer_worker_num", "warmups",
    ),
    "spec": ("speculative_algorithm", "speculative_num_draft_tokens"),
    "lora": ("max_loras_per_batch", "enable_lora_overlap_loading"),
    "disagg": ("disaggregation_mode",),
    "scheduler": ("max_total_num_tokens", "max_running_requests", "page_size"),
}  # fmt: skip
"""By the part of SGLang's configuration that holds them; what the scheduler made of them, last."""


def begin(scheduler: Any, process: Process, hook: Callable[[], Any]) -> None:
    """Give this process its role; `hook()` installs the hooks of one whose answer is waited for.

    Of several ranks that run the same batches only one records them; of the others collections are recorded.
    """
    rank, index = _rank(scheduler, "tp_rank"), _index(scheduler)
    if not getattr(scheduler, "is_generation", True):
        return
    pipeline = _rank(scheduler, "pp_size")
    if pipeline > 1:
        print("stallbook: not recording: SGLang with pipeline parallelism", file=sys.stderr)
        return
    if _rank(scheduler, "attn_tp_rank", rank) or _rank(scheduler, "attn_cp_rank"):
        process.become_worker(rank, index)
        return
    facts = {
        "layout": "model runner inside the scheduler", "engine_index": index,
        "loop": "overlap" if getattr(scheduler, "enable_overlap", False) else "normal",
    }  # fmt: skip
    hooks = process.hooks
    lacking = [] if hooks.has("Req.reset_for_retract") else ["evictions"]
    process.become_engine(index, settings(_parts(scheduler), _SETTINGS), "segment", lacking, **facts)
    hook()


def _parts(scheduler: Any) -> SimpleNamespace:
    """The parts of the configuration as they were resolved; where this SGLang has none, the server's arguments."""
    context, arguments = sys.modules.get("sglang.srt.runtime_context"), getattr(scheduler, "server_args", None)
    found = SimpleNamespace(scheduler=scheduler)
    for name in _SETTINGS:
        part, _, inner = name.partition(".")
        if part != "scheduler":
            get = getattr(context, f"get_{part}", None)
            bag = arguments if get is None else get()
            setattr(found, name, getattr(bag, inner, bag) if inner else bag)
    return found


def _rank(scheduler: Any, name: str, default: int = 0) -> int:
    """A number of this process's place among others: the scheduler's own, or of SGLang's context."""
    value = getattr(scheduler, name, None)
    if value is None:
        get = getattr(sys.modules.get("sglang.srt.runtime_context"), "get_parallel", None)
        try:
            value = getattr(get(), name, None) if get is not None else None
        except Exception:  # it raises for what it does not know yet
            value = None
    return value if isinstance(value, int) else default


def _index(scheduler: Any) -> int:
    """Which of the data-parallel ranks it is."""
    return _rank(scheduler, "dp_rank", -1) if _rank(scheduler, "dp_rank", -1) >= 0 else _rank(scheduler, "attn_dp_rank")
