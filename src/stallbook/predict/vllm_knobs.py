"""The settings of vLLM that a prediction can turn, under vLLM's own names."""

from __future__ import annotations

from typing import Final

from stallbook.predict.knobs import Knob
from stallbook.predict.vllm import VllmSettings

__all__ = ["KNOBS"]


def _budgets(s: VllmSettings) -> list[int]:
    return [n for n in (32 << i for i in range(10)) if s.max_num_seqs <= n <= 4 * s.max_num_batched_tokens]


def _halved(s: VllmSettings) -> int | None:
    half = s.max_num_batched_tokens // 2
    return half if half >= max(s.max_num_seqs, 64) else None


KNOBS: Final = {
    k.name: k
    for k in (
        Knob(
            "max_num_batched_tokens", int, ("prefill",), fix=_halved, tries=_budgets,
            assumes="the law of a chunk holds at sizes that this run seldom or never had",
        ),
        Knob(
            "long_prefill_token_threshold", int, ("prefill",),
            fix=lambda s: None if s.long_prefill_token_threshold else s.max_num_batched_tokens // 2,
            tries=lambda s: (0, *(n for n in _budgets(s) if n < s.max_num_batched_tokens)),
            moot=lambda s: not 0 < s.long_prefill_token_threshold < s.max_num_batched_tokens,
        ),
        Knob(
            "num_gpu_blocks", int, ("preempt",), fix=lambda s: 2 * s.num_gpu_blocks,
            assumes="more KV memory costs nothing",
        ),
        Knob(
            "watermark", float, ("preempt",), fix=lambda s: None if s.watermark else 0.05,
            tries=lambda s: (0.0, 0.02, 0.05, 0.1, 0.2),
        ),
        Knob(
            "max_num_seqs", int, ("preempt",),
            tries=lambda s: [n for n in (8, 16, 32, 64, 128, 256) if n <= 2 * s.max_num_seqs],
        ),
    )
}  # fmt: skip
