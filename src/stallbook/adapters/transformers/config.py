"""What a batching manager is: the settings that explain its log, and what cannot be recorded of it."""

from __future__ import annotations

from typing import Any, Final

from stallbook.adapters.process import Process
from stallbook.adapters.settings import settings

__all__ = ["begin"]

_SETTINGS: Final = {
    "": (
        "page_size", "num_blocks", "max_batch_tokens", "max_memory_percent", "max_requests_per_batch",
        "max_blocks_per_request", "allow_block_sharing", "use_async_batching", "use_cuda_graph", "scheduler_type",
        "safety_margin", "cpu_offload_space", "default_compile_level", "q_padding_interval_size", "max_queue_size",
    )
}  # fmt: skip


def begin(process: Process, manager: Any, processor: Any) -> None:
    """Give this process its role, unless an earlier manager did."""
    config = settings(manager.continuous_batching_config, _SETTINGS)
    lacking = [] if hasattr(processor.offloading_manager, "offload_requests") else ["evictions"]
    facts = {"layout": "generation thread", "device": str(getattr(processor, "model_device", ""))}
    process.become_engine(0, config, "step", lacking, **facts)
